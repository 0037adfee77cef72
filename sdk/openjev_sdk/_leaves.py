"""From a JSON Schema to its leaves, and from their answers to a value. What is supported stands in `_schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from openjev_sdk._answers import Answer, ChoiceAnswer, NoulAnswer, ScoreAnswer
from openjev_sdk._constants import MAX_LEVELS, MAX_OPTIONS
from openjev_sdk._errors import AnswerError, SchemaError
from openjev_sdk._frozen import FrozenMapping
from openjev_sdk._questions import Choice, Noul, Score, Text

__all__ = ["Leaf", "ObjectNode", "fill", "leaves", "read_schema"]

ROOT_ID = "value"

_ANNOTATIONS = {
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
}
_INTEGER_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_OPTIONAL = (
    "an optional value cannot be decided: make it required, or give the absence a name of its own in an enum "
    '("yes", "no", "unknown")'
)
_ADVICE = {
    "string": "a free string cannot be decided; list its values in an enum",
    "number": "a number cannot be decided; use a bounded integer with a description for each value",
    "array": "a list cannot be decided; use one boolean per possible entry",
    "null": "a null leaves nothing to decide",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value of the result."""

    id: str
    path: str
    question: Noul | Choice | Score | None
    """None: only one value is possible."""
    values: FrozenMapping[Any, Any]
    """From what an answer says (a bool, an option, a level) to the value; of a constant, from None."""


@dataclass(frozen=True, slots=True)
class ObjectNode:
    """An object of the result."""

    members: FrozenMapping[str, ObjectNode | Leaf]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the reader is."""

    path: str
    names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return ".".join(self.names) or ROOT_ID

    @property
    def name(self) -> str:
        """The property in words; empty at the root."""
        return self.names[-1].replace("_", " ").strip() if self.names else ""

    def error(self, problem: str) -> SchemaError:
        return SchemaError(self.path, problem)


def read_schema(document: Mapping[str, Any]) -> ObjectNode | Leaf:
    """The result that a schema describes.

    Raises:
        SchemaError: it holds something that no question can express.
    """
    node = _Reader(document).read(document, _Place("$"))
    seen: dict[str, str] = {}
    for leaf in leaves(node):
        if leaf.id in seen:
            raise SchemaError(leaf.path, f"its question id {leaf.id!r} is that of {seen[leaf.id]} too")
        seen[leaf.id] = leaf.path
    return node


def leaves(node: ObjectNode | Leaf) -> Iterator[Leaf]:
    """All leaves, in the order of the schema."""
    if isinstance(node, Leaf):
        yield node
    else:
        for member in node.members.values():
            yield from leaves(member)


def fill(node: ObjectNode | Leaf, answers: Mapping[str, Answer]) -> Any:
    """The value that the answers stand for; it validates against the schema.

    Raises:
        AnswerError: an answer is missing, of another type than its question, or none of those allowed.
    """
    if isinstance(node, ObjectNode):
        return {name: fill(member, answers) for name, member in node.members.items()}
    if node.question is None:
        return node.values[None]
    said: bool | str | int
    match node.question, answers.get(node.id):
        case Noul(), NoulAnswer(value=said):
            pass
        case Choice(), ChoiceAnswer(choice=said):
            pass
        case Score(), ScoreAnswer(level=said):
            pass
        case _, None:
            raise AnswerError(node.path, f"the host did not answer {node.id!r}")
        case _, answer:
            raise AnswerError(node.path, f"the host answered {node.id!r} with a {type(answer).__name__}")
    if said not in node.values:
        raise AnswerError(node.path, f"the host answered {said!r}, which was not asked for")
    return node.values[said]


class _Reader:
    """Reads the schemas of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def read(self, schema: Any, place: _Place, opened: frozenset[str] = frozenset()) -> ObjectNode | Leaf:
        schema, opened = self._resolve(schema, place, opened)
        kind = _kind(schema, place)
        if "const" in schema:
            _allow(schema, {"const", "type"}, place)
            _check_type(schema["const"], kind, place)
            return Leaf(place.id, place.path, None, FrozenMapping({None: schema["const"]}))
        if "enum" in schema:
            _allow(schema, {"enum", "type", "enumDescriptions"}, place)
            values = _sequence(schema["enum"], place, "enum")
            return _alternatives(values, _descriptions(schema, len(values), place), kind, schema, place)
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                alternatives = _sequence(schema[keyword], place, keyword)
                if any(isinstance(entry, Mapping) and entry.get("type") == "null" for entry in alternatives):
                    raise place.error(_OPTIONAL)
                _allow(schema, {keyword, "type"}, place)
                entries = [self._constant(entry, place, keyword, opened) for entry in alternatives]
                return _alternatives(
                    [value for value, _ in entries], [text for _, text in entries], kind, schema, place
                )
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, place, opened)
        if kind == "boolean":
            _allow(schema, {"type"}, place)
            return _noul(schema, place, None, None)
        if kind == "integer":
            return _integer(schema, place)
        raise place.error(_ADVICE.get(kind or "", "says nothing that a question could be made of"))

    def _object(self, schema: Mapping[str, Any], place: _Place, opened: frozenset[str]) -> ObjectNode:
        _allow(schema, {"type", "properties", "required", "additionalProperties"}, place)
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise place.error("properties must be an object")
        for name in schema.get("required", ()):
            if name not in properties:
                raise place.error(f"requires {name!r}, which properties does not describe")
        texts = place.texts if not place.names else (*place.texts, _text(schema, place))
        members = {}
        for name, member in properties.items():
            if not name:
                raise place.error("a property without a name cannot be asked for")
            below = _Place(_member_path(place.path, name), (*place.names, name), texts)
            members[name] = self.read(member, below, opened)
        return ObjectNode(FrozenMapping(members))

    def _constant(self, entry: Any, place: _Place, keyword: str, opened: frozenset[str]) -> tuple[Any, Text | None]:
        schema, _ = self._resolve(entry, place, opened)
        if "const" not in schema:
            raise place.error(f"every entry of {keyword} must be a const")
        _allow(schema, {"const", "type"}, place)
        _check_type(schema["const"], _kind(schema, place), place)
        return schema["const"], schema.get("description", schema.get("title"))

    def _resolve(self, schema: Any, place: _Place, opened: frozenset[str]) -> tuple[Mapping[str, Any], frozenset[str]]:
        """The schema with `$ref` and a single `allOf` replaced by what they stand for."""
        while True:
            if not isinstance(schema, Mapping):
                raise place.error(f"must be a schema object, not {schema!r}")
            if "$ref" in schema:
                reference = schema["$ref"]
                if reference in opened:
                    raise place.error(f"{reference} contains itself")
                opened |= {reference}
                schema = _merge(_referenced(self._target(reference, place), place), schema, "$ref", place)
            elif "allOf" in schema:
                parts = _sequence(schema["allOf"], place, "allOf")
                if len(parts) != 1:
                    raise place.error("allOf with more than one schema cannot be decided")
                schema = _merge(parts[0], schema, "allOf", place)
            else:
                return schema, opened

    def _target(self, reference: Any, place: _Place) -> Any:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise place.error(f"$ref {reference!r} leads out of the schema")
        target: Any = self._document
        for part in unquote(reference).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or key not in target:
                raise place.error(f"$ref {reference!r} leads nowhere")
            target = target[key]
        return target


def _referenced(target: Any, place: _Place) -> Any:
    """What a `$ref` of a property leads to, under the name of the property: its title names the type, not the use."""
    if not isinstance(target, Mapping) or not place.names:
        return target
    renamed = {key: value for key, value in target.items() if key != "title"}
    return {**renamed, "title": place.name} if "description" in target else renamed


def _merge(target: Any, schema: Mapping[str, Any], keyword: str, place: _Place) -> dict[str, Any]:
    """What a keyword stands for, under the annotations beside the keyword."""
    if not isinstance(target, Mapping):
        raise place.error(f"{keyword} must stand for a schema object")
    beside = {key: value for key, value in schema.items() if key != keyword}
    twice = sorted(key for key in beside if key in target and key not in _ANNOTATIONS and beside[key] != target[key])
    if twice:
        raise place.error(f"{', '.join(twice)} beside {keyword} and in what it stands for")
    return {**target, **beside}


def _alternatives(
    values: Sequence[Any], texts: Sequence[Text | None], kind: str | None, schema: Mapping[str, Any], place: _Place
) -> Leaf:
    """The question for one of several constants."""
    for value in values:
        _check_type(value, kind, place)
    if len(values) == 2 and all(isinstance(value, bool) for value in values) and values[0] != values[1]:
        described = dict(zip(values, texts, strict=True))
        return _noul(schema, place, described[True], described[False])
    if _consecutive(values) and all(text is not None for text in texts):
        return _score(values, [text for text in texts if text is not None], schema, place)
    names = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    if len(set(names)) < len(names):
        raise place.error("two of its values look the same")
    if len(names) > MAX_OPTIONS:
        raise place.error(f"has {len(names)} values; a choice takes at most {MAX_OPTIONS}")
    question = Choice(_instructions(schema, place), dict(zip(names, texts, strict=True)))
    return Leaf(place.id, place.path, question, FrozenMapping(dict(zip(names, values, strict=True))))


def _noul(schema: Mapping[str, Any], place: _Place, true: Text | None, false: Text | None) -> Leaf:
    question = Noul(_instructions(schema, place), true=true, false=false)
    return Leaf(place.id, place.path, question, FrozenMapping({True: True, False: False}))


def _integer(schema: Mapping[str, Any], place: _Place) -> Leaf:
    _allow(schema, {"type", "enumDescriptions", *_INTEGER_BOUNDS}, place)
    for keyword in _INTEGER_BOUNDS & schema.keys():
        _check_type(schema[keyword], "integer", place)
    lows = [schema["minimum"]] if "minimum" in schema else []
    lows += [schema["exclusiveMinimum"] + 1] if "exclusiveMinimum" in schema else []
    highs = [schema["maximum"]] if "maximum" in schema else []
    highs += [schema["exclusiveMaximum"] - 1] if "exclusiveMaximum" in schema else []
    if not lows or not highs:
        raise place.error("an integer needs a minimum and a maximum to be decided")
    values = range(int(max(lows)), int(min(highs)) + 1)
    if "enumDescriptions" not in schema:
        raise place.error("an integer needs enumDescriptions, one for each value, to be decided")
    texts = _descriptions(schema, len(values), place)
    if any(text is None for text in texts):
        raise place.error("enumDescriptions of an integer must describe every value")
    return _score(values, [text for text in texts if text is not None], schema, place)


def _score(values: Sequence[int], levels: Sequence[Text], schema: Mapping[str, Any], place: _Place) -> Leaf:
    if not 1 <= len(values) <= MAX_LEVELS:
        raise place.error(f"has {len(values)} levels; a score takes 1 to {MAX_LEVELS}")
    return Leaf(
        place.id, place.path, Score(_instructions(schema, place), levels), FrozenMapping(dict(enumerate(values)))
    )


def _descriptions(schema: Mapping[str, Any], count: int, place: _Place) -> Sequence[Text | None]:
    if "enumDescriptions" not in schema:
        return [None] * count
    texts = schema["enumDescriptions"]
    if not isinstance(texts, Sequence) or isinstance(texts, str) or len(texts) != count:
        raise place.error(f"enumDescriptions must be a list of {count}, one for each value")
    return texts


def _sequence(value: Any, place: _Place, keyword: str) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise place.error(f"{keyword} must be a list that is not empty")
    return value


def _consecutive(values: Sequence[Any]) -> bool:
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return False
    return list(values) == list(range(values[0], values[0] + len(values)))


def _kind(schema: Mapping[str, Any], place: _Place) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, list) and len(kind) == 1:
        kind = kind[0]
    if isinstance(kind, list) and "null" in kind:
        raise place.error(_OPTIONAL)
    if kind is not None and not isinstance(kind, str):
        raise place.error(f"a value of several types {kind!r} cannot be decided")
    return kind


def _check_type(value: Any, kind: str | None, place: _Place) -> None:
    types: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
        "null": type(None),
        "object": Mapping,
        "array": list,
    }
    if kind is None:
        return
    if kind not in types:
        raise place.error(f"has no known type: {kind!r}")
    numeric = kind in {"integer", "number"}
    if not isinstance(value, types[kind]) or (numeric and isinstance(value, bool)):
        raise place.error(f"{value!r} is not of type {kind}")


def _allow(schema: Mapping[str, Any], keywords: set[str], place: _Place) -> None:
    unknown = sorted(key for key in schema if key not in keywords and key not in _ANNOTATIONS)
    if unknown:
        raise place.error(f"{', '.join(unknown)} cannot be decided here")


def _instructions(schema: Mapping[str, Any], place: _Place) -> str | None:
    own = _text(schema, place)
    return " > ".join((*place.texts, own)) if own or place.texts else None


def _text(schema: Mapping[str, Any], place: _Place) -> str:
    title, description = (
        value if isinstance(value := schema.get(key), str) else "" for key in ("title", "description")
    )
    if place.names and title == place.names[-1].title().replace("_", " ").strip():
        title = ""  # made by pydantic, out of the name
    return ": ".join(text for text in (title, description) if text) or place.name


def _member_path(path: str, name: str) -> str:
    return f"{path}.properties.{name}" if name.isidentifier() else f"{path}.properties[{json.dumps(name)}]"
