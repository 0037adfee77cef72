"""Numbers worked out by hand, and what must hold for any."""

from __future__ import annotations

from math import sqrt

import pytest
from agreement.made import choice, fixture, noul, score
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_compat.estimate import Estimate, mean, share
from openjev_compat.fixture import Fixture
from openjev_compat.gate import judge
from openjev_compat.interval import bootstrap_mean, wilson
from openjev_compat.mcnemar import mcnemar
from openjev_compat.metrics import Thresholds, total_variation
from openjev_compat.pairing import base_run, join
from openjev_compat.report import Report, build_report
from openjev_compat.store import FixtureError
from openjev_compat.wording import excluded_line, floor_title

LEFT = [
    fixture("n1", noul(0.9), reference={"true": 1.0}),
    fixture("n2", noul(0.4), reference={"true": 1.0}),
    fixture("c1", choice(0.2, 0.7, 0.1), reference={"b": 0.6, "a": 0.4}),
    fixture("c2", choice(0.95, 0.05, 0.0), reference={"b": 0.5, "a": 0.5}),
    fixture("s1", score(0.1, 0.8, 0.1)),
]
RIGHT = [
    fixture("n1", noul(0.95), reference={"true": 1.0}),
    fixture("n2", noul(0.6), reference={"true": 1.0}),
    fixture("c1", choice(0.5, 0.3, 0.2), reference={"b": 0.6, "a": 0.4}),
    fixture("c2", choice(1.0, 0.0, 0.0), reference={"b": 0.5, "a": 0.5}),
    fixture("s1", score(0.0, 0.5, 0.5)),
]


def report(left: list[Fixture] = LEFT, right: list[Fixture] = RIGHT) -> Report:
    return build_report(left, right, names=("ours", "jev"), thresholds=Thresholds())


def estimate(name: str) -> Estimate:
    found = report().overall.estimate(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "hits", "n"),
    [
        ("agreement", 3, 5),
        ("noul_agreement", 1, 2),
        ("validity", 5, 5),
        ("accuracy_left", 2, 3),  # n1 and c1; c2's reference is tied, s1 has none
        ("accuracy_right", 2, 3),  # n1 and n2
        ("gate_passed_left", 2, 5),  # n1 with .9, c2 with .925
        ("gate_passed_right", 2, 5),
        ("gate_changed", 0, 5),
        ("gate_agreement", 2, 2),
    ],
)
def test_shares(name: str, hits: int, n: int) -> None:
    found = estimate(name)
    assert (found.hits, found.n) == (hits, n)
    assert found.value == hits / n


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("noul_delta", (0.05 + 0.2) / 2),
        ("total_variation", (0.05 + 0.2 + 0.4 + 0.05 + 0.4) / 5),
        ("score_error", 0.5),
        # P(true) .9/.95 and .4/.6; our top answers b .7/.3, a .95/1, level one .8/.5
        ("brier_right", (0.05**2 + 0.2**2 + 0.4**2 + 0.05**2 + 0.3**2) / 5),
        ("ece_right", (abs(0.9 - 0.95 + 0.95 - 1.0) + 0.2 + 0.4 + 0.3) / 5),
        ("brier_reference", (0.1**2 + 0.6**2 + 0.3**2) / 3),
    ],
)
def test_distances(name: str, expected: float) -> None:
    assert estimate(name).value == pytest.approx(expected)


def test_mcnemar_is_the_exact_binomial_test() -> None:
    tested = report().mcnemar
    assert tested is not None
    assert (tested.both, tested.left_only, tested.right_only, tested.neither) == (1, 1, 1, 0)
    assert tested.p_value == 1.0
    wrong = [fixture(f"m{number}", noul(0.1), reference={"true": 1.0}) for number in range(8)]
    right = [fixture(f"m{number}", noul(0.8), reference={"true": 1.0}) for number in range(8)]
    lopsided = mcnemar(join(base_run(wrong, side="left"), base_run(right, side="right")))
    assert lopsided is not None
    assert (lopsided.left_only, lopsided.right_only) == (0, 8)
    assert lopsided.p_value == pytest.approx(2 / 2**8)


def test_disagreements_come_clearest_first() -> None:
    rows = report().disagreements
    assert [row.id for row in rows] == ["made/one/c1", "made/one/n2"]
    assert [row.margin for row in rows] == pytest.approx([0.2, 0.2])
    assert rows[0].state == "state of c1"


def test_an_answer_outside_the_allowed_set_is_counted() -> None:
    left = [fixture("c1", {"type": "choice", "choice": "z", "probabilities": {"z": 1.0}}), *LEFT[:2]]
    found = report(left).overall.estimate("validity")
    assert found is not None
    assert (found.hits, found.n) == (2, 3)


@pytest.mark.parametrize("shares", [{"a": 0.9, "b": 0.3}, {"a": 0.5, "b": 0.4}])
def test_a_distribution_that_does_not_sum_to_one_is_invalid(shares: dict[str, float]) -> None:
    left = [fixture("c1", {"type": "choice", "choice": "a", "probabilities": shares})]
    found = report(left).overall.estimate("validity")
    assert found is not None
    assert found.hits == 0


def test_the_noise_floor_shows_both_sides_on_the_same_questions() -> None:
    again = fixture("n1", noul(0.97), run="again")
    floor = report(right=[*RIGHT, again]).noise[0]
    assert (floor.run, floor.n) == ("again", 1)
    repeated = {row.name: row.value for row in floor.repeated}
    ours = {row.name: row.value for row in floor.left}
    assert repeated["noul_delta"] == pytest.approx(0.02)
    assert ours["noul_delta"] == pytest.approx(0.05)


def test_another_version_is_said_and_another_model_is_no_noise() -> None:
    base = fixture("n1", noul(0.95), model="jev-1.13.0")
    runs = [
        fixture("n1", noul(0.97), run="again", model="jev-1.13.0"),
        fixture("n1", noul(0.99), run="newer", model="jev-1.14.0"),
        fixture("n1", noul(0.2), run="grouped", model="google/diffusiongemma-26B-A4B-it"),
    ]
    found = report(right=[base, *runs]).noise
    assert [floor_title(floor) for floor in found] == ["again", "newer (another model version: jev-1.14.0)"]


def test_the_majority_baseline_does_not_count_the_question_itself() -> None:
    right = [fixture("c1", choice(0.9, 0.1, 0.0)), fixture("c2", choice(0.1, 0.9, 0.0))]
    found = report(right=right).overall.majority
    assert found is not None
    assert (found.hits, found.n) == (0, 2)  # each is predicted to be the other


@pytest.mark.parametrize(("threshold", "sides"), [(0.3, (2, 2)), (0.5, (1, 2)), (0.92, (1, 2)), (0.97, (2, 2))])
def test_the_threshold_moves_one_metric_only(threshold: float, sides: tuple[int, int]) -> None:
    plain = report()
    moved = build_report(LEFT, RIGHT, names=("ours", "jev"), thresholds=Thresholds(noul=threshold))
    for before, after in zip(plain.overall.estimates, moved.overall.estimates, strict=True):
        if before.name != "noul_agreement":
            assert after == before
    assert moved.mcnemar == plain.mcnemar
    assert moved.disagreements == plain.disagreements
    found = moved.overall.estimate("noul_agreement")
    assert found is not None
    assert (found.hits, found.n) == sides


def test_a_bare_label_is_not_judged_at_another_threshold() -> None:
    left = [fixture("n1", {"type": "noul", "label": "true"}), LEFT[1]]
    for threshold, n, excluded in ((0.5, 2, None), (0.8, 1, 1)):
        found = build_report(left, RIGHT, names=("ours", "jev"), thresholds=Thresholds(noul=threshold))
        sides, agreement = (found.overall.estimate(name) for name in ("noul_agreement", "agreement"))
        assert sides is not None
        assert sides.n == n
        assert agreement is not None
        assert (agreement.hits, agreement.n) == (1, 2)
        assert found.excluded.get("label only at a threshold") == excluded
        assert ("label only, at the threshold 1" in (excluded_line(found) or "")) == (excluded is not None)


def test_several_answers_to_one_question_need_a_choice() -> None:
    left = [fixture("n1", noul(0.9), run="one"), fixture("n1", noul(0.8), run="two")]
    with pytest.raises(FixtureError, match=r"more than once.*--run"):
        report(left)


@pytest.mark.parametrize(
    ("metric", "limit", "strict", "passed"),
    [
        ("agreement", 0.6, False, True),
        ("agreement", 0.61, False, False),
        ("agreement", 0.6, True, False),
        ("total_variation", 0.23, False, True),
        ("total_variation", 0.2, False, False),
    ],
)
def test_the_gate(metric: str, limit: float, strict: bool, passed: bool) -> None:
    verdict = judge(report().overall, metric, limit, strict=strict)
    assert verdict.passed == passed
    assert metric in verdict.reason


def test_the_gate_refuses_what_cannot_be_judged() -> None:
    with pytest.raises(FixtureError, match="unknown metric"):
        judge(report().overall, "vibes", 0.5, strict=False)
    bare = build_report(LEFT[:1], RIGHT[:1], names=("a", "b"), thresholds=Thresholds()).overall
    with pytest.raises(FixtureError, match="do not give score_error"):
        judge(bare, "score_error", 0.5, strict=False)


def test_wilson_by_hand() -> None:
    # The interval holds the p with |k/n - p| <= z * sqrt(p (1 - p) / n): its ends solve that with equality.
    for hits, n in ((138, 144), (1, 3), (5, 10)):
        for end in wilson(hits, n):
            assert abs(hits / n - end) == pytest.approx(1.959963984540054 * sqrt(end * (1 - end) / n))
    assert wilson(0, 5)[0] == 0.0
    assert wilson(5, 5)[1] == 1.0


@given(st.lists(st.booleans(), min_size=1, max_size=50))
def test_a_share_lies_in_its_interval(outcomes: list[bool]) -> None:
    found = share("any", outcomes)
    assert found is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abcdef")), min_size=1, max_size=30))
def test_the_bootstrap_stays_within_the_values_and_repeats(rows: list[tuple[float, str]]) -> None:
    values, cases = [value for value, _ in rows], [case for _, case in rows]
    low, high = bootstrap_mean(values, cases)
    assert (low, high) == bootstrap_mean(values, cases)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    if len(set(cases)) == 1:
        found = mean("one case", values, cases)
        assert found is not None
        assert low == pytest.approx(high)


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
def test_total_variation_is_a_distance(left: list[float], right: list[float]) -> None:
    p = {name: value / sum(left) for name, value in zip("abc", left, strict=True)}
    q = {name: value / sum(right) for name, value in zip("abc", right, strict=True)}
    assert total_variation(p, p) == 0.0
    assert total_variation(p, q) == pytest.approx(total_variation(q, p))
    assert 0.0 <= total_variation(p, q) <= 1.0
