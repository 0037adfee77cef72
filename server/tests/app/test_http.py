"""Headers, keys, limits, overload and failures."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from app_support import BODY, NOUL, Running, Serve
from openjev_server.app import create_app
from openjev_server.bundle import ModelBundle, load_bundle, resolve_model
from openjev_server.engine.fake import FAKE_INFO, FakeEngine
from openjev_server.engine.protocol import EngineError, EngineRequest, NonFiniteLogits
from openjev_server.settings import Settings

MISSING = "Must supply an API key! Check your request and try again."
WRONG = "Cannot authenticate with the server. Please check your API key and try again."


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(scope="module")
def keyed(serve: Serve) -> Iterator[Running]:
    hashed = hashlib.sha256(b"second").hexdigest()
    with serve(api_keys=f"first-user=first,second-user=sha256:{hashed},bare") as running:
        yield running


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic Zmlyc3Q=", "first"])
@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/systemone"), ("GET", "/v1/models"), ("POST", "/v1/v1/systemone")]
)
def test_a_missing_key(keyed: Running, method: str, path: str, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    response = keyed.client.request(method, path, headers=headers, content=b"{")
    assert response.status_code == 403
    assert response.json() == {"detail": {"error_type": "authentication_error", "message": MISSING}}


@pytest.mark.parametrize("key", ["wrong", "firs", "first2", "first-user", "\u00e9".encode().decode("latin-1")])
def test_a_wrong_key(keyed: Running, key: str) -> None:
    response = keyed.client.get("/v1/models", headers=[(b"authorization", f"Bearer {key}".encode("latin-1"))])
    assert response.status_code == 401
    assert response.json() == {"detail": {"error_type": "authentication_error", "message": WRONG}}


@pytest.mark.parametrize("authorization", ["Bearer first", "bearer second", "Bearer bare"])
def test_a_right_key(keyed: Running, authorization: str) -> None:
    assert keyed.client.get("/v1/models", headers={"authorization": authorization}).status_code == 200
    assert keyed.ask(authorization=authorization).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/ready", "/openapi.json"])
def test_open_paths_need_no_key(keyed: Running, path: str) -> None:
    assert keyed.client.get(path).status_code == 200


def test_keys_are_optional_without_a_list(plain: Running) -> None:
    assert plain.ask(authorization="Bearer anything").status_code == 200
    assert plain.ask(authorization="nonsense").status_code == 200


def test_headers_of_an_answer(plain: Running) -> None:
    headers = plain.ask().headers
    assert headers["x-openjev-fingerprint"] == "openjev-nano-1@fa4e00000000/nano-label-v1/isolated/2/float32/none"
    assert headers["x-openjev-calibration"] == "none"
    timing = dict(part.split(";dur=") for part in headers["server-timing"].split(", "))
    assert list(timing) == ["queue", "model", "total"]
    assert all(float(value) >= 0 for value in timing.values())
    assert "server" not in headers
    assert "date" in headers


def test_overrides(plain: Running) -> None:
    response = plain.ask(openjev_layout="grouped", openjev_steps="3", openjev_replicas="2", openjev_decimals="5")
    assert "/grouped/3x2/" in response.headers["x-openjev-fingerprint"]
    request = plain.engine.batches[-1][0]
    assert request.steps == 3
    assert {len(block.canvases) for block in request.blocks} == {2}
    assert response.json()["answers"]["urgent"]["noul"] != round(response.json()["answers"]["urgent"]["noul"], 2)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("openjev_layout", "x"),
        ("openjev_steps", "0"),
        ("openjev_steps", "9"),
        ("openjev_replicas", "a"),
        ("openjev_decimals", "7"),
    ],
)
def test_bad_overrides(plain: Running, header: str, value: str) -> None:
    response = plain.ask(**{header: value})
    assert response.status_code == 400
    assert header.replace("_", "-") in response.json()["detail"]["message"].lower()


def test_overrides_can_be_forbidden(serve: Serve) -> None:
    with serve(allow_overrides=False, steps=4, layout="grouped") as running:
        assert running.ask(openjev_steps="2").status_code == 400
        assert "/grouped/4/" in running.ask().headers["x-openjev-fingerprint"]


def test_token_limits(serve: Serve) -> None:
    long = {**BODY, "state": "word " * 300}
    questions = {f"q{i}": NOUL for i in range(60)}
    for limits in ({"max_prompt_tokens": 200}, {"max_total_tokens": 300}):
        with serve(**limits) as running:
            response = running.ask(long)
            assert response.status_code == 400
            assert response.json() == {"detail": {"error_type": "max_tokens_exceeded"}}
            assert not running.engine.batches
    with serve(max_prompt_tokens=200, max_total_tokens=10_000) as running:
        assert running.ask({**BODY, "questions": questions}).status_code == 200


def test_ten_megabytes_of_text(plain: Running) -> None:
    response = plain.ask({**BODY, "state": "lorem ipsum " * 850_000})
    assert response.status_code == 400
    assert response.json() == {"detail": {"error_type": "max_tokens_exceeded"}}


def test_too_many_questions_are_refused_uncompiled(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("openjev_server.decide.surely_longer")
    with serve(max_total_tokens=50) as running:
        response = running.ask({**BODY, "questions": {f"q{i}": NOUL for i in range(26)}})
    assert response.status_code == 400
    assert response.json() == {"detail": {"error_type": "max_tokens_exceeded"}}


def test_too_many_values(serve: Serve) -> None:
    with serve(max_json_values=1000) as running:
        response = running.ask({**BODY, "state": [[]] * 1000})
        assert response.status_code == 413
        assert "1000 JSON values" in response.json()["detail"]
        assert running.ask().status_code == 200


def test_the_body_limit(serve: Serve) -> None:
    with serve(max_body_bytes=10_000) as running:
        declared = running.ask({**BODY, "state": "x" * 20_000})
        chunked = running.client.post("/v1/systemone", content=iter([b"x" * 6_000] * 4))
        assert declared.status_code == chunked.status_code == 413
        assert declared.json() == chunked.json()
        assert "10000 bytes" in declared.json()["detail"]
        assert running.ask().status_code == 200


def test_a_full_queue(serve: Serve) -> None:
    gate = threading.Event()
    with serve(FakeEngine(gate=gate), max_queued_requests=1, retry_after_s=7) as running, ThreadPoolExecutor() as pool:
        first = pool.submit(running.ask)
        wait_for(running.engine.entered.is_set)
        second = pool.submit(running.ask)
        wait_for(lambda: running.admission.queued == 1)
        refused = running.ask()
        gate.set()
        assert first.result().status_code == second.result().status_code == 200
    assert refused.status_code == 529
    assert refused.headers["retry-after"] == "7"
    assert refused.json()["detail"]["error_type"] == "overloaded"


def test_a_client_that_leaves_frees_its_place(serve: Serve) -> None:
    gate = threading.Event()
    with serve(FakeEngine(gate=gate)) as running, ThreadPoolExecutor() as pool:
        first = pool.submit(running.ask)
        wait_for(running.engine.entered.is_set)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{running.url}/v1/systemone", json=BODY, timeout=0.3)
        wait_for(lambda: running.admission.queued == 0)
        gate.set()
        assert first.result().status_code == 200
        assert running.ask().status_code == 200
        assert [len(batch) for batch in running.engine.batches] == [1, 1]


def test_stopping_answers_what_was_accepted(serve: Serve) -> None:
    gate = threading.Event()
    with ThreadPoolExecutor() as pool:
        with serve(FakeEngine(gate=gate)) as running:
            answers = [pool.submit(httpx.post, f"{running.url}/v1/systemone", json=BODY, timeout=20) for _ in range(4)]
            wait_for(lambda: running.engine.entered.is_set() and running.admission.queued == 3)
            threading.Timer(0.5, gate.set).start()
        assert [answer.result().status_code for answer in answers] == [200] * 4
    assert running.engine.closed


@pytest.mark.parametrize("error", [NonFiniteLogits("nan"), EngineError("broken")])
def test_our_own_failures_are_loud(serve: Serve, error: EngineError, caplog: pytest.LogCaptureFixture) -> None:
    def failure(_request: EngineRequest) -> EngineError:
        return error

    with serve(FakeEngine(failure=failure)) as running:
        response = running.ask()
    assert response.status_code == 500
    assert response.json()["detail"]["error_type"] == "internal_error"
    assert str(error) in caplog.text


def test_unexpected_exceptions_have_a_body_and_an_id(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("openjev_server.decide.read_out", explode)
    with serve() as running:
        response = running.ask()
    assert response.status_code == 500
    assert "ZeroDivisionError" in caplog.text


def test_not_ready_until_warm(serve: Serve) -> None:
    class Slow(FakeEngine):
        gate = threading.Event()

        def warm_up(self) -> None:
            self.gate.wait()

    with serve(Slow()) as running:
        assert running.client.get("/ready").status_code == 503
        assert running.client.get("/health").status_code == 200
        Slow.gate.set()
        wait_for(lambda: running.admission.ready)
        assert running.client.get("/ready").status_code == 200


def test_large_answers_are_compressed_when_accepted(plain: Running) -> None:
    questions = {f"question number {i}": NOUL for i in range(100)}
    large = {**BODY, "questions": questions}
    zipped = plain.ask(large, accept_encoding="gzip")
    assert zipped.headers["content-encoding"] == "gzip"
    assert zipped.json() == plain.ask(large, accept_encoding="identity").json()


def test_what_would_only_grow_is_not_compressed(serve: Serve) -> None:
    gzip = {"accept-encoding": "gzip"}
    with serve() as running:
        sizes = {
            path: int(running.client.get(path, headers={"accept-encoding": "identity"}).headers["content-length"])
            for path in ("/health", "/v1/models")
        }
        assert sizes["/health"] < 200 <= sizes["/v1/models"]
        assert "content-encoding" not in running.client.get("/health", headers=gzip).headers
        models = running.client.get("/v1/models", headers=gzip)
        assert models.headers["content-encoding"] == "gzip"
        assert int(models.headers["content-length"]) < sizes["/v1/models"]
        assert running.ask(accept_encoding="gzip").headers["content-encoding"] == "gzip"
        assert running.ask(accept_encoding="gzip").headers["vary"] == "Accept-Encoding"
    with serve(gzip_minimum_bytes=5000) as running:
        assert "content-encoding" not in running.client.get("/v1/models", headers=gzip).headers


def test_an_answer_says_whether_it_is_calibrated(serve: Serve, bundle: ModelBundle) -> None:
    weights = json.loads((bundle.directory / "calibration.json").read_text())["weights_hash"]
    with serve(FakeEngine(replace(FAKE_INFO, weights_hash=weights))) as running:
        calibrated, more_steps, grouped = (
            running.ask(**headers).headers for headers in ({}, {"openjev_steps": "3"}, {"openjev_layout": "grouped"})
        )
    assert re.fullmatch(r"[0-9a-f]{12}", calibrated["x-openjev-calibration"])
    assert calibrated["x-openjev-fingerprint"].endswith("/" + calibrated["x-openjev-calibration"])
    assert more_steps["x-openjev-calibration"] == grouped["x-openjev-calibration"] == "none"


def test_a_broken_multipart_body_leaves_no_line_in_the_log(plain: Running, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b"}
    assert plain.client.post("/v1/systemone", content=b"nothing of the kind", headers=headers).status_code == 400
    assert not caplog.records


def test_cors(serve: Serve, plain: Running) -> None:
    preflight = {"origin": "https://app.test", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in plain.ask(origin="https://app.test").headers
    with serve(cors_origins="https://app.test", api_keys="key") as running:
        allowed = running.client.options(
            "/v1/systemone", headers={**preflight, "access-control-request-headers": "authorization,content-type"}
        )
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://app.test"
        refused = running.ask(origin="https://app.test")
        assert refused.status_code == 403
        assert refused.headers["access-control-allow-origin"] == "https://app.test"
        assert "x-typesafe-request-id" in refused.headers["access-control-expose-headers"]
        assert "access-control-allow-origin" not in running.ask(origin="https://other.test").headers
        foreign = running.client.options("/v1/systemone", headers={**preflight, "origin": "https://other.test"})
        assert foreign.status_code == 400
        assert foreign.headers["content-type"] == "application/json"
        assert foreign.json() == {"detail": "Disallowed CORS origin"}
        assert "access-control-allow-origin" not in foreign.headers


def test_the_app_answers_in_process_without_a_lifespan(bundle: ModelBundle) -> None:
    async def scenario() -> httpx.Response:
        app = create_app(FakeEngine(), Settings(), bundle)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://in-process") as client:
            response = await client.post("/v1/systemone", json=BODY)
        await app.state.admission.drain(5)
        return response

    assert asyncio.run(scenario()).status_code == 200


def test_what_an_owners_template_cannot_ask_is_refused(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    shown = "{% for f in fields %}{{ f.question }} {{ f.criteria }} {{ f.allowed }}{% endfor %}"
    file.write_text(f'base = "nano-literal"\nname = "own"\nprompt = "{{{{ document.strip() }}}}{shown}"\n')
    model = load_bundle(resolve_model("nano"), template=str(file))
    with serve(model=model) as running:
        assert running.ask(BODY).status_code == 200
        refused = running.ask(BODY | {"state": {"message": "no text"}})
        assert refused.status_code == 400
        assert "Template own-1 cannot ask this" in refused.json()["detail"]["message"]


def test_a_field_wider_than_a_shared_canvas_is_answered_alone(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('base = "nano-literal"\nname = "own"\ngrouped_width = 16\n')
    long = {"type": "choice", "criteria": {f"{i} {'a long name of an option ' * 4}": None for i in range(3)}}
    questions = {"urgent": NOUL, "which": long, "again": NOUL}
    with serve(model=load_bundle(resolve_model("nano"), template=str(file))) as running:
        assert running.ask(BODY | {"questions": questions}, openjev_layout="grouped").status_code == 200
