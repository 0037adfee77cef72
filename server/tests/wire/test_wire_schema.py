"""The published schemas: kept equal to the code, and true of what was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from openjev_server.wire import answer, body, errors, models, openapi, overrides, parse
from openjev_server.wire.openapi import json_schemas
from openjev_server.wire.openapi import openapi as openapi_document

SCHEMAS = json_schemas()
VALIDATORS = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}
FIXTURES = Path(__file__).parents[3] / "fixtures"
PAIRS = [
    pytest.param(pair, id=f"{file.stem}/{pair['id']}")
    for file in sorted((FIXTURES / "recorded").glob("*.json"))
    for pair in json.loads(file.read_text())["pairs"]
]


def test_the_published_schemas_are_those_of_the_code() -> None:
    published = {
        file.name.removesuffix(".schema.json"): json.loads(file.read_text())
        for file in (FIXTURES / "schema").glob("*.schema.json")
    }
    assert published == SCHEMAS
    for schema in published.values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("pair", PAIRS)
def test_recorded_exchanges(pair: dict[str, Any]) -> None:
    response = pair["response"]
    if "models" in response:
        VALIDATORS["models"].validate(response)
    elif "detail" in response:
        VALIDATORS["error"].validate(response)
    else:
        # Some recorders dropped the model, the usage or a confidence; what is there must fit.
        definitions = SCHEMAS["response"]["$defs"]
        for one in response["answers"].values():
            name = f"{one['type'].title()}Answer"
            schema = {**definitions[name], "$defs": definitions}
            schema["required"] = [key for key in schema["required"] if key in one]
            Draft202012Validator(schema).validate(one)
        if {"model", "usage"} <= response.keys():
            VALIDATORS["response"].validate(response)
    if pair["status"] == 200 and pair.get("request"):
        VALIDATORS["request"].validate(pair["request"])
        parse.parse_request(pair["request"], unknown_fields="reject")


MATRIX = json.loads((FIXTURES / "validation_matrix.json").read_text())


@pytest.mark.parametrize("name", [n for n in MATRIX if "body" in MATRIX[n]])
def test_the_request_schema_refuses_what_the_server_refuses(name: str) -> None:
    with pytest.raises(ValidationError):
        VALIDATORS["request"].validate(MATRIX[name]["body"])


def test_openapi() -> None:
    document = openapi_document()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == "0.2.0"
    assert {"/v1/systemone", "/v1/models", "/openapi.json", "/health", "/ready"} == document["paths"].keys()
    schemas = document["components"]["schemas"]
    assert {"RequestModel", "ResponseModel", "ErrorModel", "ListingModel"} <= schemas.keys()
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    for reference in _references(document):
        assert _resolve(document, reference)


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [ref for child in node.values() for ref in _references(child)]
    return [ref for child in node for ref in _references(child)] if isinstance(node, list) else []


def _resolve(document: dict[str, Any], reference: str) -> Any:
    node: Any = document
    for part in reference.removeprefix("#/").split("/"):
        node = node[part]
    return node


@pytest.mark.parametrize("module", [answer, body, errors, models, openapi, overrides, parse])
def test_public_names_exist(module: Any) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)
