"""What the app's tests share: request bodies, a check of every answer's form, a running server's handle."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jsonschema
from openjev_server.admission import Admission
from openjev_server.engine.fake import FakeEngine
from openjev_server.serving import Server

__all__ = ["BODY", "CHOICE", "FIXTURES", "NOUL", "REQUEST_ID", "SCORE", "Running", "Serve", "check_form"]

FIXTURES = Path(__file__).parents[2] / "fixtures"
REQUEST_ID = re.compile(r"req_[0-9a-f]{32}")

NOUL = {"type": "noul", "instructions": "Is it urgent?"}
CHOICE = {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "Payments", "technical": None}}
SCORE = {"type": "score", "instructions": "How angry?", "criteria": ["calm", "annoyed", "furious"]}
BODY = {
    "model": "jev-latest",
    "state": "My card was charged twice.",
    "questions": {"urgent": NOUL, "team": CHOICE, "anger": SCORE},
}


def _validators() -> dict[str, jsonschema.Draft202012Validator]:
    files = {name: FIXTURES / "schema" / f"{name}.schema.json" for name in ("response", "error", "models")}
    return {name: jsonschema.Draft202012Validator(json.loads(file.read_text())) for name, file in files.items()}


VALIDATORS = _validators()


def check_form(response: httpx.Response) -> None:
    """What holds for every response, whatever it answers."""
    response.read()
    assert REQUEST_ID.fullmatch(response.headers["x-typesafe-request-id"]), response.headers
    if response.request.method in {"HEAD", "OPTIONS"}:
        return
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    if response.status_code >= 400:
        VALIDATORS["error"].validate(body)
    elif response.url.path.rstrip("/").endswith("/systemone"):
        VALIDATORS["response"].validate(body)
        check_sums(body)
    elif response.url.path.rstrip("/").endswith("/models"):
        VALIDATORS["models"].validate(body)


def check_sums(body: dict[str, Any]) -> None:
    for answer in body["answers"].values():
        if "probabilities" in answer:
            assert round(sum(answer["probabilities"].values()), 9) == 1


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    url: str
    client: httpx.Client
    engine: FakeEngine
    admission: Admission
    server: Server

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def ask(self, body: Any = BODY, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post("/v1/systemone", json=body, headers=named)


Serve = Callable[..., AbstractContextManager[Running]]
