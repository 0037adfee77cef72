"""The published description of the wire: an OpenAPI 3.1 document and JSON Schemas, both from the pydantic models.

`python -m openjev_server.wire.openapi DIRECTORY` writes the schemas that `fixtures/schema` holds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from openjev_server.wire.overrides import CALIBRATION, DECIMALS, REPLICAS, STEPS
from openjev_server.wire.response import ErrorModel, ListingModel, ResponseModel
from openjev_server.wire.schema import RequestModel

__all__ = ["API_VERSION", "json_schemas", "openapi"]

API_VERSION = "0.2.0"
"""The version of the dialect, not of this server."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DOCUMENTS: dict[str, type[BaseModel]] = {
    "request": RequestModel,
    "response": ResponseModel,
    "error": ErrorModel,
    "models": ListingModel,
}
_ERRORS = {
    "400": "The request asks for something that cannot be answered",
    "401": "Wrong API key",
    "403": "Missing API key",
    "408": "The request took too long to arrive",
    "413": "The body is too large, or holds too many JSON values",
    "415": "Unsupported Content-Encoding",
    "422": "The request does not match the schema",
    "431": "The header is too large",
    "503": "The server is stopping; `Retry-After` says when to come back",
    "529": "Overloaded; `Retry-After` says when to come back",
}


def json_schemas() -> dict[str, dict[str, Any]]:
    """JSON Schema (draft 2020-12) by name: request, response, error, models."""
    return {
        name: {"$schema": _DIALECT, **model.model_json_schema(mode="validation")} for name, model in _DOCUMENTS.items()
    }


def openapi() -> dict[str, Any]:
    """The document that `GET /openapi.json` answers with."""
    _, schemas = models_json_schema(
        [(model, "validation") for model in _DOCUMENTS.values()], ref_template="#/components/schemas/{model}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "OpenJev",
            "description": "Typed decisions with probabilities: yes/no, choice and score questions about a text.",
            "version": API_VERSION,
        },
        "paths": {
            "/v1/systemone": {"post": _systemone()},
            "/v1/models": {
                "get": _operation("List the models", "list_models", ListingModel, errors=("401", "403")),
            },
            "/openapi.json": {"get": _open_operation("This document", "openapi")},
            "/health": {"get": _open_operation("Is the process alive?", "health")},
            "/ready": {
                "get": {
                    **(ready := _open_operation("Can it answer questions?", "ready")),
                    "responses": {**ready["responses"], "503": {"description": "Not yet"}},
                }
            },
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "headers": {
                "RequestId": {
                    "description": "Names this exchange; on every response",
                    "schema": {"type": "string", "pattern": "^req_[0-9a-f]{32}$"},
                },
                "Fingerprint": {
                    "description": "model@weights/template/layout/steps/dtype/calibration: what computed the answer; "
                    "steps as 2x8 with 8 noise replicas",
                    "schema": {"type": "string"},
                },
                "Calibration": {
                    "description": "Hash of the calibration that was applied, with :noul behind it where only yes/no "
                    "answers are calibrated, and +prior under prior correction; none: probabilities as they were read",
                    "schema": {"type": "string"},
                },
            },
        },
    }


def _systemone() -> dict[str, Any]:
    operation = _operation("Answer questions about a state", "system_one", ResponseModel, errors=tuple(_ERRORS))
    operation["parameters"] = [
        _header("OpenJev-Layout", {"type": "string", "enum": ["isolated", "grouped"]}),
        _header("OpenJev-Steps", _range(STEPS)),
        _header("OpenJev-Replicas", _range(REPLICAS)),
        _header("OpenJev-Decimals", _range(DECIMALS)),
        _header("OpenJev-Calibration", {"type": "string", "enum": list(CALIBRATION)}),
    ]
    operation["requestBody"] = {"required": True, "content": _content(RequestModel)}
    headers = operation["responses"]["200"]["headers"]
    headers["x-openjev-fingerprint"] = {"$ref": "#/components/headers/Fingerprint"}
    headers["x-openjev-calibration"] = {"$ref": "#/components/headers/Calibration"}
    return operation


def _operation(summary: str, name: str, model: type[BaseModel], *, errors: tuple[str, ...]) -> dict[str, Any]:
    responses = {"200": {"description": "OK", "content": _content(model)}} | {
        status: {"description": _ERRORS[status], "content": _content(ErrorModel)} for status in errors
    }
    request_id = {"x-typesafe-request-id": {"$ref": "#/components/headers/RequestId"}}
    return {
        "summary": summary,
        "operationId": name,
        # The empty requirement: a server without keys asks for none.
        "security": [{"bearer": []}, {}],
        "responses": {status: {**response, "headers": dict(request_id)} for status, response in responses.items()},
    }


def _open_operation(summary: str, name: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}}}
    return {
        "summary": summary,
        "operationId": name,
        "security": [],
        "responses": {"200": {"description": "OK", "content": content}},
    }


def _content(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def _header(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "schema": schema}


def _range(values: range) -> dict[str, Any]:
    return {"type": "integer", "minimum": values.start, "maximum": values.stop - 1}


def main(directory: str) -> None:
    """Writes every schema to `DIRECTORY/<name>.schema.json`."""
    for name, schema in json_schemas().items():
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        (Path(directory) / f"{name}.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
