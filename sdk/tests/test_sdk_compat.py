"""`openjev_sdk.compat` beside typesafe-sdk 0.7.5: the same names, signatures, and outcomes on a real socket."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import Any

import openjev_sdk
import pytest
from openjev_sdk import compat
from stub_host import ANSWERS, BODY, Host, state, stub_host

typesafe_sdk = pytest.importorskip("typesafe_sdk")

IMAGES = {"Asset", "Box", "BoxAnswer", "BoxCoordinates", "BoxModel", "Image"}
NAMES = sorted(set(typesafe_sdk.__all__) - IMAGES)
CLASSES = [
    name
    for name in NAMES
    if inspect.isclass(getattr(typesafe_sdk, name)) and not issubclass(getattr(typesafe_sdk, name), dict)
]


def test_it_is_the_version_that_compat_follows() -> None:
    assert typesafe_sdk.__version__ == "0.7.5"


@pytest.mark.parametrize("name", NAMES)
def test_every_text_related_name_is_there(name: str) -> None:
    assert hasattr(compat, name)
    assert name in compat.__all__


def shape(signature: inspect.Signature) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults: what a call can tell apart. A default that a factory makes is its value."""
    return [(name, parameter.kind, default(parameter.default)) for name, parameter in signature.parameters.items()]


def default(value: Any) -> Any:
    return "<factory>" if "factory" in repr(value).lower() else value


@pytest.mark.parametrize("name", CLASSES)
def test_constructors_have_equal_signatures(name: str) -> None:
    official, own = getattr(typesafe_sdk, name), getattr(compat, name)
    if official.__init__ is Exception.__init__:
        assert own.__init__ is Exception.__init__
        return
    try:
        expected = inspect.signature(official)
    except ValueError:  # an exception without a constructor of its own
        assert own.__text_signature__ is None
        return
    assert shape(inspect.signature(own)) == shape(expected)


@pytest.mark.parametrize("name", CLASSES)
def test_public_methods_have_equal_signatures(name: str) -> None:
    official, own = getattr(typesafe_sdk, name), getattr(compat, name)
    for attribute, member in vars(official).items():
        if attribute.startswith("_") or attribute in {"attach_assets", "boxes", "model_config"}:
            continue
        assert hasattr(own, attribute), attribute
        if inspect.isfunction(member):
            assert shape(inspect.signature(getattr(own, attribute))) == shape(inspect.signature(member))
            assert inspect.iscoroutinefunction(getattr(own, attribute)) == inspect.iscoroutinefunction(member)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("Error")])
def test_exceptions_have_the_bases_of_the_official_ones(name: str) -> None:
    official = {base.__name__ for base in getattr(typesafe_sdk, name).__mro__}
    assert official <= {base.__name__ for base in getattr(compat, name).__mro__}


def test_constants_have_equal_names() -> None:
    names = {name for name in vars(typesafe_sdk.constants) if name.isupper()}
    assert names == set(compat.constants.__all__)
    differing = {n for n in names if getattr(typesafe_sdk.constants, n) != getattr(compat.constants, n)}
    assert differing == {"DEFAULT_BASE_URL"}


def test_retry_policies_have_equal_defaults() -> None:
    official, own = typesafe_sdk.RetryPolicy(), compat.RetryPolicy()
    assert {f.name: getattr(official, f.name) for f in dataclasses.fields(official)} == dataclasses.asdict(own)


def questions(sdk: Any) -> dict[str, Any]:
    return {
        "urgent": sdk.Noul(instructions="Is it urgent?", criteria={"true": "today", "false": None}),
        "label": sdk.Choice(criteria={"billing": "Money", "other": None}, instructions="What is it about?"),
        "tone": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "angry"]},
    }


def outcome(call: Any) -> Any:
    """Everything about a result or an error that the two clients must agree on."""
    try:
        result = call()
    except Exception as error:
        names = ("status", "body", "request_id", "endpoint", "field_path", "retry_after_ms", "timeout")
        seen = {name: getattr(error, name) for name in names if hasattr(error, name)}
        own_words = not hasattr(error, "status") or hasattr(error, "field_path") or not seen["body"]
        return type(error).__name__, seen, None if own_words else str(error)
    answers = {name: (type(answer).__name__, answer.model_dump()) for name, answer in result.answers.items()}
    groups = [list(result.nouls), list(result.choices), list(result.scores)]
    return result.model, result.usage.model_dump(), answers, groups, result.request_id, result.model_dump_json()


def error(status: int, body: Any = "", **headers: str) -> dict[str, Any]:
    return {
        "status": status,
        "body": body,
        "headers": {name.replace("_", "-"): value for name, value in headers.items()},
    }


def changed(*path: str, **fields: Any) -> dict[str, Any]:
    """The good body with the object at the path changed; None drops a field."""
    import copy

    body = copy.deepcopy(BODY)
    place: Any = body
    for part in path:
        place = place[part]
    for name, value in fields.items():
        if value is ...:
            del place[name]
        else:
            place[name] = value
    return {"body": body}


API_USAGE = {"detail": {"error_type": "api_usage_error", "message": "Unknown model: x"}}
LISTED = {
    "detail": [
        {"type": "missing", "loc": ["body", "questions", "q", "noul"], "msg": "Field required", "input": {}},
        {"type": "missing", "loc": ["body"], "msg": "Field required", "input": {}},
        {"msg": 1},
    ]
}
SCENARIOS: dict[str, list[dict[str, Any]]] = {
    "good": [{}],
    "extra fields": [changed("answers", "urgent", stats={})],
    "400": [error(400, API_USAGE)],
    "400 string": [error(400, {"detail": "Question key cannot be empty."})],
    "401": [error(401, {"detail": {"error_type": "authentication_error", "message": "Cannot authenticate"}})],
    "403": [error(403, {"error": {"message": "no", "code": 1}})],
    "404": [error(404, {"detail": "Not Found"})],
    "404 text": [error(404, "nothing here")],
    "409": [error(409, {"message": "conflict"})],
    "418 odd": [error(418, {"detail": {"x": "y" * 300}})],
    "422": [error(422, LISTED)],
    "302": [error(302, {"detail": "elsewhere"}, location="http://127.0.0.1:9/")],
    "400 no message": [error(400, {"detail": {"error_type": "max_tokens_exceeded"}})],
    "408 then good": [error(408), {}],
    "429 twice then good": [error(429, {"detail": "slow"}, retry_after_ms="5"), error(429, retry_after="0"), {}],
    "429 for good": [error(429, {"detail": "slow"})],
    "429 too long": [error(429, {"detail": "slow"}, retry_after="60")],
    "429 date": [error(429, {"detail": "slow"}, retry_after="Thu, 01 Jan 2015 00:00:00 GMT"), {}],
    "429 nonsense": [error(429, {"detail": "slow"}, retry_after="soon", retry_after_ms="x"), {}],
    "500 then good": [error(500, "oops"), {}],
    "503 for good": [error(503, {"detail": "down"})],
    "529 for good": [error(529, {"detail": {"error_type": "overloaded", "message": "busy"}}, retry_after="0")],
    "dropped then good": [{"drop": True}, {}],
    "dropped for good": [{"drop": True}],
    "hanging then good": [{"hang": True}, {}],
    "hanging for good": [{"hang": True}],
    "not json": [{"body": "<html>"}],
    "a list": [{"body": "[]"}],
    "no model": [changed(model=...)],
    "null model": [changed(model=None)],
    "no usage": [changed(usage=...)],
    "empty usage": [changed(usage={})],
    "null tokens": [changed(usage={"input_tokens": None, "output_tokens": 3})],
    "float tokens": [changed(usage={"input_tokens": 12.0})],
    "no answers": [changed(answers=...)],
    "null answers": [changed(answers=None)],
    "no type": [changed("answers", "urgent", type=...)],
    "unknown type": [changed("answers", "urgent", type="box3d")],
    "noul string": [changed("answers", "urgent", noul="0.5")],
    "noul int": [changed("answers", "urgent", noul=1)],
    "noul bool": [changed("answers", "urgent", noul=True)],
    "noul out of range": [changed("answers", "urgent", noul=7.5)],
    "no confidence": [changed("answers", "label", confidence=...)],
    "null confidence": [changed("answers", "label", confidence=None)],
    "no probabilities": [changed("answers", "label", probabilities=...)],
    "string probability": [changed("answers", "label", probabilities={"billing": "1"})],
    "no legend": [changed("answers", "tone", legend=...)],
    "number in legend": [changed("answers", "tone", legend={"0": 1})],
    "structured legend": [changed("answers", "tone", legend={"0": {"a": 1}, "1": ["b"]})],
    "level that is no number": [changed("answers", "tone", probabilities={"low": 1.0})],
    "list of probabilities": [changed("answers", "tone", probabilities=[1.0])],
}
EAGER = {"max_retries": 2, "backoff_initial": 0.0}


@pytest.fixture(scope="module")
def host() -> Any:
    with stub_host() as host:
        yield host


@pytest.mark.parametrize("name", SCENARIOS)
def test_one_script_has_one_outcome_under_both_imports(host: Host, name: str) -> None:
    outcomes = {}
    for sdk in (typesafe_sdk, compat):
        label = f"{sdk.__name__} {name}"
        settings = {"api_key": "k", "base_url": host.url + "/", "timeout": 0.15 if "hanging" in name else 5.0}
        with sdk.TypeSafeClient(retry=sdk.RetryPolicy(**EAGER), **settings) as client:
            seen = outcome(lambda: client.system_one(state(label, *SCENARIOS[name]), questions(sdk)))  # noqa: B023
        bodies = [body | {"state": None} for body in host.requests[label]]
        outcomes[sdk.__name__] = (seen, bodies, host.retry_counts[label])
    assert outcomes["openjev_sdk.compat"] == outcomes["typesafe_sdk"]


@pytest.mark.parametrize("name", ["good", "422", "429 twice then good", "529 for good", "hanging for good"])
def test_so_do_the_asyncio_clients(host: Host, name: str) -> None:
    async def run(sdk: Any, label: str) -> Any:
        settings = {"api_key": "k", "base_url": host.url, "timeout": 0.15 if "hanging" in name else 5.0}
        async with sdk.AsyncTypeSafeClient(retry=sdk.RetryPolicy(**EAGER), **settings) as client:
            try:
                result = await client.system_one(state(label, *SCENARIOS[name]), questions(sdk))
            except sdk.TypeSafeError as error:
                return type(error).__name__, getattr(error, "status", None)
            models = await client.models.list()
            return result.model_dump_json(), models.model_dump_json()

    outcomes = {}
    for sdk in (typesafe_sdk, compat):
        label = f"async {sdk.__name__} {name}"
        seen = asyncio.run(run(sdk, label))
        outcomes[sdk.__name__] = (seen, host.retry_counts[label])
    assert outcomes["openjev_sdk.compat"] == outcomes["typesafe_sdk"]


UNSENDABLE: dict[str, Any] = {
    "no question": lambda sdk: ("s", {}),
    "no state": lambda sdk: (None, questions(sdk)),
    "choice without options": lambda sdk: ("s", {"q": sdk.Choice(criteria={})}),
    "choice dictionary without criteria": lambda sdk: ("s", {"q": {"type": "choice"}}),
    "score dictionary without levels": lambda sdk: ("s", {"q": {"type": "score", "criteria": []}}),
    "noul that asks nothing": lambda sdk: ("s", {"q": sdk.Noul()}),
    "noul with undescribed sides": lambda sdk: ("s", {"q": sdk.Noul(criteria={"true": None})}),
    "noul dictionary with a list": lambda sdk: ("s", {"q": {"type": "noul", "criteria": ["a"]}}),
    "a string": lambda sdk: ("s", {"q": "is it?"}),
    "no type": lambda sdk: ("s", {"q": {"instructions": "x"}}),
}


@pytest.mark.parametrize("name", UNSENDABLE)
def test_neither_sends_what_cannot_be_answered(name: str) -> None:
    for sdk in (typesafe_sdk, compat):
        with (
            sdk.TypeSafeClient(api_key="k", base_url="http://127.0.0.1:9") as client,
            pytest.raises(sdk.TypeSafeError) as caught,
        ):
            client.system_one(*UNSENDABLE[name](sdk))
        assert type(caught.value) is sdk.TypeSafeError


@pytest.mark.parametrize(
    "make",
    [
        lambda sdk: sdk.Choice(criteria=["a", "b"]),
        lambda sdk: sdk.Score(criteria={"0": "a"}),
        lambda sdk: sdk.Score(criteria=[]),
        lambda sdk: sdk.Noul(criteria=["a"]),
        lambda sdk: sdk.Noul(criteria={"yes": "a"}),
    ],
)
def test_neither_builds_a_question_of_the_wrong_shape(make: Any) -> None:
    for sdk in (typesafe_sdk, compat):
        with pytest.raises(ValueError):  # noqa: PT011 - pydantic's own error there, a plain one here
            make(sdk)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_retries": -1},
        {"backoff_initial": -1.0},
        {"backoff_max": float("inf")},
        {"backoff_jitter": 2},
        {"timeout": 0},
    ],
)
def test_neither_takes_such_retry_settings(settings: dict[str, Any]) -> None:
    for sdk in (typesafe_sdk, compat):
        with pytest.raises(sdk.TypeSafeError):
            sdk.RetryPolicy(**settings)


def test_numbers_that_json_lacks_become_strings(host: Host) -> None:
    numbers = [float("nan"), float("inf"), -float("inf"), (1.5, {"a": float("nan")})]
    for sdk in (typesafe_sdk, compat):
        label = f"{sdk.__name__} numbers"
        with sdk.TypeSafeClient(api_key="k", base_url=host.url) as client:
            client.system_one(state(label) | {"numbers": numbers}, questions(sdk))
    own, official = (host.requests[f"{sdk.__name__} numbers"][0]["state"]["numbers"] for sdk in (compat, typesafe_sdk))
    assert own == official == ["NaN", "Infinity", "-Infinity", [1.5, {"a": "NaN"}]]


def test_response_models_lift_answers_into_fields(host: Host) -> None:
    results = {}
    for sdk in (typesafe_sdk, compat):
        namespace = {"__annotations__": {"urgent": sdk.NoulAnswer, "label": sdk.ChoiceAnswer}, "__module__": __name__}
        triage = type("Triage", (sdk.SystemOneResponse,), namespace)
        with sdk.TypeSafeClient(api_key="k", base_url=host.url) as client:
            result = client.system_one(state(sdk.__name__), questions(sdk), response_model=triage)
            missing = changed("answers", urgent=...)
            with pytest.raises(sdk.TypeSafeAPIResponseValidationError) as caught:
                client.system_one(state(f"{sdk.__name__} m", missing), questions(sdk), response_model=triage)
        results[sdk.__name__] = (result.urgent.noul, result.label.choice, caught.value.field_path)
    assert results["openjev_sdk.compat"] == results["typesafe_sdk"] == (0.31, "billing", "urgent")


def test_response_models_may_be_any_pydantic_class(host: Host) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Raw", model=(str, ...), answers=(dict, ...))
    strict = pydantic.create_model("Strict", other=(list[int], ...))
    for sdk in (typesafe_sdk, compat):
        with sdk.TypeSafeClient(api_key="k", base_url=host.url) as client:
            assert client.system_one(state(f"{sdk} p"), questions(sdk), response_model=model).answers == ANSWERS
            with pytest.raises(sdk.TypeSafeAPIResponseValidationError) as caught:
                client.system_one(state(f"{sdk} p"), questions(sdk), response_model=strict)
            assert caught.value.field_path == "other"


@pytest.mark.parametrize("sdk", [typesafe_sdk, compat])
def test_models_are_copied_and_validated(sdk: Any) -> None:
    response = sdk.SystemOneResponse.model_validate_json(json.dumps(BODY))
    assert sdk.SystemOneResponse.model_validate(response.model_dump()).model_dump() == response.model_dump()
    assert sdk.SystemOneResponse.model_validate(response) is response
    assert {type(answer) for answer in response.answers.values()} == {sdk.NoulAnswer, sdk.ChoiceAnswer, sdk.ScoreAnswer}
    changed = response.model_copy(update={"model": "other"})
    assert (changed.model, response.model, type(changed)) == ("other", BODY["model"], sdk.SystemOneResponse)
    assert response.model_copy(deep=True) == response
    assert sdk.NoulAnswer.model_validate({"type": "noul", "noul": 0.5}).noul == 0.5
    assert sdk.Usage.model_validate({"input_tokens": 1}).model_copy(update={"output_tokens": 2}).output_tokens == 2
    for kind, value in ((sdk.NoulAnswer, {}), (sdk.ChoiceAnswer, {"choice": 1}), (sdk.Usage, {"input_tokens": "x"})):
        with pytest.raises(ValueError, match=r"noul|choice|input_tokens"):
            kind.model_validate(value)


def test_no_module_imports_another_in_a_function() -> None:
    """That is how circles are hidden."""
    package = Path(openjev_sdk.__file__).parent
    texts = {path.name: path.read_text() for path in package.rglob("*.py")}
    assert [name for name, text in texts.items() if re.search(r"^ +from openjev_sdk", text, re.MULTILINE)] == []
