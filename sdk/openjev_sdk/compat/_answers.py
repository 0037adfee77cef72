"""Answers."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, cast

from openjev_sdk.compat._logging import logger
from openjev_sdk.compat._read import (
    InvalidError,
    read_entries,
    read_number,
    read_object,
    read_string,
    read_text,
)

__all__ = [
    "Answer",
    "ChoiceAnswer",
    "ModelMetadata",
    "NoulAnswer",
    "Record",
    "ScoreAnswer",
    "Usage",
    "read_answer",
]


class Record:
    """What callers use most of the pydantic methods that the official classes have."""

    @classmethod
    def model_validate(cls, obj: Any) -> Self:
        """One from plain data, as `model_dump` gives it, or the object itself.

        Raises:
            ValueError: naming the field that is not valid.
        """
        return obj if isinstance(obj, cls) else cls._read(obj, "")

    @classmethod
    def model_validate_json(cls, json_data: str | bytes) -> Self:
        """The same from JSON."""
        return cls.model_validate(json.loads(json_data))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, with other values for some of the fields."""
        made = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            if name not in {f.name for f in dataclasses.fields(cast(Any, self))}:
                raise ValueError(f"{type(self).__name__} has no field {name!r}")
            object.__setattr__(made, name, value)
        return made

    @classmethod
    def _read(cls, raw: Any, path: str) -> Self:
        raise NotImplementedError

    def model_dump(self, *, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """All fields as plain data."""
        return cast(dict[str, Any], _plain(self, exclude_none))

    def model_dump_json(self, *, indent: int | None = None, exclude_none: bool = False) -> str:
        """All fields as JSON."""
        separators = (",", ":") if indent is None else None
        return json.dumps(_plain(self, exclude_none), ensure_ascii=False, indent=indent, separators=separators)


@dataclass(frozen=True, kw_only=True)
class NoulAnswer(Record):
    """The answer to a yes/no question."""

    type: Literal["noul"] = "noul"
    noul: float
    """Probability of yes."""

    @classmethod
    def _read(cls, raw: Any, path: str) -> Self:
        return cls(noul=read_number(read_object(raw, path).get("noul"), _join(path, "noul")))


@dataclass(frozen=True, kw_only=True)
class ChoiceAnswer(Record):
    """The answer to a choice."""

    type: Literal["choice"] = "choice"
    choice: str
    confidence: float
    probabilities: dict[str, float]

    @classmethod
    def _read(cls, raw: Any, path: str) -> Self:
        return cls(
            choice=read_string(read_object(raw, path), "choice", path),
            confidence=read_number(raw.get("confidence"), _join(path, "confidence")),
            probabilities=read_entries(raw, "probabilities", path, str, read_number),
        )


@dataclass(frozen=True, kw_only=True)
class ScoreAnswer(Record):
    """The answer to a score."""

    type: Literal["score"] = "score"
    score: float
    """The expected level."""
    confidence: float
    legend: dict[int, str | dict[str, Any] | list[Any]]
    probabilities: dict[int, float]

    @classmethod
    def _read(cls, raw: Any, path: str) -> Self:
        return cls(
            score=read_number(read_object(raw, path).get("score"), _join(path, "score")),
            confidence=read_number(raw.get("confidence"), _join(path, "confidence")),
            legend=read_entries(raw, "legend", path, int, read_text),
            probabilities=read_entries(raw, "probabilities", path, int, read_number),
        )


Answer: TypeAlias = NoulAnswer | ChoiceAnswer | ScoreAnswer


@dataclass(frozen=True, kw_only=True)
class Usage(Record):
    """Tokens; None where the host does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None

    @classmethod
    def _read(cls, raw: Any, path: str) -> Self:
        usage = read_object(raw, path)
        for name in ("input_tokens", "output_tokens"):
            value = usage.get(name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise InvalidError(_join(path, name))
        return cls(input_tokens=usage.get("input_tokens"), output_tokens=usage.get("output_tokens"))


@dataclass(frozen=True, kw_only=True)
class ModelMetadata(Record):
    """A model that the host offers."""

    name: str
    description: str
    release_date: str

    @classmethod
    def _read(cls, raw: Any, path: str) -> Self:
        entry = read_object(raw, path)
        return cls(
            name=read_string(entry, "name", path),
            description=read_string(entry, "description", path),
            release_date=read_string(entry, "release_date", path),
        )


def read_answer(raw: Mapping[str, Any], path: str) -> Answer | None:
    """The answer of a type that is known, else None. Raises InvalidError."""
    match raw["type"]:
        case "noul":
            return NoulAnswer._read(raw, path)
        case "choice":
            return ChoiceAnswer._read(raw, path)
        case "score":
            return ScoreAnswer._read(raw, path)
        case kind:
            logger.warning("leaving out answer %r of unknown type %r", path, kind)
            return None


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _plain(value: Any, exclude_none: bool) -> Any:
    if dataclasses.is_dataclass(value):
        pairs = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return {k: _plain(v, exclude_none) for k, v in pairs.items() if not (exclude_none and v is None)}
    if isinstance(value, dict):
        return {k: _plain(v, exclude_none) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, exclude_none) for v in value]
    return value
