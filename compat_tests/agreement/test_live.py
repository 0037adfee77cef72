"""Asking a server: grouping, concurrency, failures, resuming."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from agreement.made import QUESTIONS, choice, fixture, noul
from agreement.stubs import answer, body
from openjev_compat.asking import Ask, asks_of, read_requests
from openjev_compat.fixture import Request, Usage
from openjev_compat.journal import Journal
from openjev_compat.live import LiveRun, Target, ask_all
from openjev_compat.store import FixtureError, load_fixtures
from openjev_sdk import AsyncClient, Options

Handler = Callable[[httpx.Request], httpx.Response]
URL = "http://stub.test"


def run(asks: list[Ask], handler: Handler, path: Path | None = None, *, options: Options | None = None) -> LiveRun:
    async def asked() -> LiveRun:
        transport = httpx.MockTransport(handler)
        async with AsyncClient(URL, transport=transport, max_retries=0) as client:
            target = Target(URL, model="jev-latest", options=options, concurrency=3)
            return await ask_all(client, target, asks, Journal(path), lambda: None)

    return asyncio.run(asked())


def asks(count: int) -> list[Ask]:
    return asks_of([fixture(f"n{number}", noul(0.5)) for number in range(count)])


def test_questions_of_one_node_on_one_state_travel_together() -> None:
    request = Request("shared", QUESTIONS["noul"])
    other = Request("another state", QUESTIONS["noul"])
    grouped = asks_of(
        [
            fixture("a", noul(0.5), case="c", node="n", request=request),
            fixture("b", noul(0.5), case="c", node="n", request=request),
            fixture("c", noul(0.5), case="c", node="m", request=request),
            fixture("d", noul(0.5), case="c", node="n", request=other),
            fixture("e", choice(0.5, 0.5, 0.0), request=None),
        ]
    )
    assert [list(ask.questions) for ask in grouped] == [
        ["made/one/a", "made/one/b"],
        ["made/one/c"],
        ["made/one/d"],
    ]


def test_answers_come_back_as_fixtures_in_order() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answer(request)

    result = run(asks(7), handler, options=Options(steps=4))
    assert [kept.id for kept in result.fixtures] == [f"made/one/n{number}" for number in range(7)]
    assert len(seen) == 7
    assert all(request.headers["OpenJev-Steps"] == "4" for request in seen)
    first = result.fixtures[0]
    assert first.answer == {"type": "noul", "noul": 0.75}
    assert (first.model, first.steps, first.usage) == ("stub-1", 4, Usage(100, 20, 1))
    assert first.latency_ms is not None
    assert result.failures == ()
    assert result.wall_s is not None


def test_a_failed_request_is_listed_and_does_not_stop_the_others() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if "n2" in json.loads(request.content)["state"]:
            return httpx.Response(400, json={"detail": "no"})
        return answer(request)

    result = run(asks(4), handler)
    assert len(result.fixtures) == 3
    assert result.failed_questions == 1
    assert "made/one/n2" in result.failures[0]


@pytest.mark.parametrize("given", [None, {"type": "box"}, {}, {"type": "choice", "choice": "a", "confidence": 1.0}])
def test_a_question_without_an_answer_of_its_type_is_listed(given: dict[str, object] | None) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        content = json.loads(answer(request).content)
        if "n2" in json.loads(request.content)["state"]:
            content["answers"] = {} if given is None else dict.fromkeys(content["answers"], given)
        return httpx.Response(200, json=content)

    result = run(asks(4), handler)
    assert len(result.fixtures) == 3
    assert result.failed_questions == 1
    assert result.failures == ("made/one/n2: no answer of the type that was asked",)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    count = 0

    def dies(request: httpx.Request) -> httpx.Response:
        nonlocal count
        count += 1
        if count > 3:
            raise MemoryError
        return answer(request)

    with pytest.raises(ExceptionGroup):
        run(asks(6), dies, path)
    kept = load_fixtures([path])
    assert 1 <= len(kept) <= 3
    with path.open("a", encoding="utf-8") as lines:
        lines.write('{"id": "cut sh')  # killed in the middle of a line

    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["state"])
        return answer(request)

    result = run(asks(6), handler, path)
    assert len(asked) == 6 - len(kept)
    assert len(result.fixtures) == 6
    assert len(load_fixtures([path])) == 6
    assert result.wall_s is None  # a part of the time was spent before

    asked.clear()
    run(asks(6), handler, path)
    assert asked == []


def test_a_node_cut_off_while_it_was_written_is_asked_again_and_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    request = Request("shared", QUESTIONS["noul"])
    nodes = asks_of(
        [fixture(f"{node}{n}", noul(0.5), case="c", node=node, request=request) for node in "ab" for n in range(3)]
    )
    first = run(nodes, answer, path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in {sum(map(len, lines[:count])) + extra for count in range(6) for extra in (0, 1, len(lines[count]) - 1)}:
        path.write_bytes(whole[:cut])
        asked: list[httpx.Request] = []

        def handler(request: httpx.Request, asked: list[httpx.Request] = asked) -> httpx.Response:
            asked.append(request)
            return answer(request)

        again = run(nodes, handler, path)
        assert len(asked) == 2 - whole[:cut].count(b"\n") // 3
        assert {kept.id for kept in load_fixtures([path])} == {kept.id for kept in first.fixtures}, cut
        assert [kept.id for kept in again.fixtures] == [kept.id for kept in first.fixtures]
        assert again.failed_questions == 0
    path.write_bytes(whole + b"".join(lines[:2]))  # as an older version left it
    assert run(nodes, lambda _: pytest.fail("asked again"), path).fixtures == first.fixtures
    assert len(load_fixtures([path])) == 6
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_line_separator_in_a_text_does_not_break_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    odd = asks_of([fixture("n", noul(0.5), request=Request("one\u2028two\x85three", QUESTIONS["noul"]))])
    first = run(odd, answer, path)
    assert run(odd, lambda _: pytest.fail("asked again"), path).fixtures == first.fixtures


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    run(asks(1), answer, path)
    with pytest.raises(FixtureError, match="not of"):
        run(asks(1), answer, path, options=Options(steps=3))
    reworded = fixture("n0", noul(0.5), request=Request("another state", QUESTIONS["noul"]))
    with pytest.raises(FixtureError, match="another wording"):
        run(asks_of([reworded]), answer, path)


@pytest.mark.parametrize("lines", [True, False])
def test_requests_are_read_from_an_array_or_from_lines(tmp_path: Path, lines: bool) -> None:
    bodies = [body("noul", "score"), body("choice")]
    path = tmp_path / "requests"
    path.write_text("\n".join(map(json.dumps, bodies)) if lines else json.dumps(bodies), encoding="utf-8")
    read = read_requests(path, workflow="mine", licence="ours")
    assert [list(ask.questions) for ask in read] == [["mine/1/noul", "mine/1/score"], ["mine/2/choice"]]
    assert read[0].state == "a state"


@pytest.mark.parametrize(
    "text",
    ["nonsense", '[{"state": "no questions"}]', '[{"questions": {"q": {}}}]', "[3]", '{"state": NaN}', "", "\xe4"],
)
def test_other_requests_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "requests"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FixtureError, match="requests"):
        read_requests(path, workflow="mine", licence="ours")


ODD: list[dict[str, object]] = [
    {"answers": {"type": "noul", "noul": 1.7}},
    {"answers": {"type": "noul", "noul": float("nan")}},
    {"model": ""},
    {"model": "\ud800"},
]


@pytest.mark.parametrize("odd", ODD, ids=["share", "nan", "no name", "surrogate"])
def test_an_answer_that_could_not_be_read_again_is_listed_and_not_kept(tmp_path: Path, odd: dict[str, object]) -> None:
    path = tmp_path / "answers.jsonl"

    def handler(request: httpx.Request) -> httpx.Response:
        content = json.loads(answer(request).content)
        if "n2" in json.loads(request.content)["state"]:
            answers = dict.fromkeys(content["answers"], odd["answers"]) if "answers" in odd else content["answers"]
            content = {**content, **odd, "answers": answers}
        return httpx.Response(200, content=json.dumps(content).encode())

    for _ in range(2):  # the file is good enough to go on from
        result = run(asks(4), handler, path)
        assert [fixture.id for fixture in result.fixtures] == ["made/one/n0", "made/one/n1", "made/one/n3"]
        assert result.failed_questions == 1
        assert "made/one/n2" in result.failures[0]
    assert len(load_fixtures([path])) == 3


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": True, "output_tokens": 2}, {"input_tokens": -1}, [3]])
def test_tokens_that_are_no_counts_cost_no_answer(usage: object) -> None:
    assert Usage.of(usage, questions=1) is None


def test_requests_that_would_answer_one_question_twice_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_text("\n".join(json.dumps({**body("noul"), "id": "same"}) for _ in range(2)), encoding="utf-8")
    with pytest.raises(FixtureError, match="request 2: mine/same/noul"):
        read_requests(path, workflow="mine", licence="ours")
