"""A few prompts with the answers a checkpoint gave where it was right, to check every later load against.

`self_check` is what `doctor` asks in a second; this is the longer test that the first owner of a checkpoint records:
states of several lengths (one longer than the sliding window), both layouts, one to four steps, noise replicas, many
options. The file is bound to weights and template, and says per question which answer led by how much.

Tolerance: no probability may differ by more than `self_check.TOLERANCE` of the coarser of the two dtypes (0.01 for
float32, 0.08 for bfloat16, more for weights that are quantised while loading), and the top answer must be the same
wherever it led by more than twice that. Other kernels and batch shapes round differently and send a few tokens to other
experts; a wrong window, mask or scale moves answers by far more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from openjev_server.canvas.compile import Compiler, Layout
from openjev_server.canvas.readout import read_out
from openjev_server.engine.protocol import Engine, EngineResult
from openjev_server.questions import Choice, Noul, Option, Question, Score, Text
from openjev_server.self_check import QUESTIONS, STATE, TOLERANCE

__all__ = ["FILE_NAME", "PROMPTS", "Case", "Recording", "SelfTestError", "SelfTestResult", "check", "record"]

FILE_NAME = "self_test.json"
DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Case:
    """A request and how it is run."""

    name: str
    state: Text
    questions: tuple[Question, ...]
    layout: Layout = Layout.ISOLATED
    steps: int = 2
    replicas: int = 1


CITIES = ("New York", "New Delhi", "New Orleans", "Newcastle", "Oslo", "Osaka", "Lima", "Lisbon", "Cairo", "Cape Town")
LOG = "\n".join(
    f"{hour:02d}:{minute:02d} pump {1 + (hour + minute) % 4}: pressure normal, valve closed, no alarm"
    for hour in range(24)
    for minute in (0, 20, 40)
)

PROMPTS: tuple[Case, ...] = (
    Case("isolated", STATE, QUESTIONS),
    Case("grouped", STATE, QUESTIONS, layout=Layout.GROUPED),
    Case("one step", STATE, QUESTIONS, steps=1),
    Case(
        "data",
        {
            "order": {"id": 7, "paid": True, "items": [{"name": "lamp", "count": 2}]},
            "note": "Bitte bis Freitag! 急ぎです",
        },
        (
            Noul("paid", "Has the order been paid?", "paid is true", "paid is false"),
            Score("count", "How many lamps were ordered?", ("none", "one", "two", "three or more")),
        ),
        steps=4,
    ),
    Case(
        "options",
        "We land in New Orleans on Tuesday and spend the whole week there.",
        (Choice("city", "Which city is the trip to?", tuple(map(Option, CITIES))),),
        replicas=2,
    ),
    Case("long", f"{LOG}\n23:59 pump 3: valve open, ALARM", (Noul("alarm", "Was there an alarm?"),)),
)


class SelfTestError(ValueError):
    """There is no recording to check against, or it belongs to something else; the message says which."""


class Expected(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    top: int
    """Number of the likeliest answer."""
    margin: float
    """Its probability minus the second largest."""
    probabilities: tuple[float, ...]
    """Of every answer, in order (a noul: true, false)."""


class Recording(BaseModel):
    """What `self_test.json` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    weights_hash: str
    """Of the checkpoint's files, whatever format they are loaded as."""
    template: str
    template_hash: str
    dtype: str
    device: str
    recorded_at: str
    prompts: Mapping[str, Mapping[str, Expected]]
    """By prompt, by question id."""


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """What came out."""

    problems: tuple[str, ...]
    """Empty when all is well."""
    questions: int
    difference: float
    """The largest difference of a probability."""
    where: str
    """The question it was found at."""
    tolerance: float


def record(engine: Engine, compiler: Compiler, path: Path, *, model: str, weights_hash: str) -> Recording:
    """Asks every prompt and writes the file. Raises EngineError and OSError."""
    recording = Recording(
        model=model,
        weights_hash=weights_hash,
        template=compiler.template.id,
        template_hash=compiler.template.hash,
        dtype=engine.info.dtype,
        device=engine.info.device,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        prompts={prompt.name: _asked(engine, compiler, prompt) for prompt in PROMPTS},
    )
    path.write_text(recording.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return recording


def check(
    engine: Engine, compiler: Compiler, path: Path, *, weights_hash: str, tolerance: float | None = None
) -> SelfTestResult:
    """Asks every recorded prompt again and compares. `tolerance` replaces the one of the dtypes.

    Raises SelfTestError for a file that is absent, malformed, or bound to other weights or another template, and
    EngineError.
    """
    recording = _read(path)
    _check_bound(recording, weights_hash, compiler)
    allowed = max(TOLERANCE[recording.dtype], TOLERANCE[engine.info.dtype]) if tolerance is None else tolerance
    problems: list[str] = []
    differences: list[tuple[float, str]] = []
    for prompt in PROMPTS:
        for name, now in _asked(engine, compiler, prompt).items():
            then = recording.prompts[prompt.name][name]
            where = f"{prompt.name}, {name}"
            difference = max(abs(p - q) for p, q in zip(now.probabilities, then.probabilities, strict=True))
            differences.append((difference, where))
            if difference > allowed:
                problems.append(f"{where}: a probability differs by {difference:.3f}")
            if now.top != then.top and then.margin > 2 * allowed:
                problems.append(f"{where}: answer {now.top}, recorded {then.top} with a margin of {then.margin:.2f}")
    largest, where = max(differences)
    return SelfTestResult(tuple(problems), len(differences), largest, where, allowed)


def _asked(engine: Engine, compiler: Compiler, prompt: Case) -> dict[str, Expected]:
    compiled = compiler.compile(
        prompt.state, prompt.questions, layout=prompt.layout, steps=prompt.steps, replicas=prompt.replicas
    )
    (result,) = engine.run([compiled.request])
    if not isinstance(result, EngineResult):
        raise result
    answers = zip(prompt.questions, read_out(compiled, result), strict=True)
    return {question.id: _expected(probabilities.tolist()) for question, probabilities in answers}


def _expected(probabilities: list[float]) -> Expected:
    first, second = sorted(probabilities, reverse=True)[:2]
    return Expected(
        top=probabilities.index(first),
        margin=round(first - second, DECIMALS),
        probabilities=tuple(round(p, DECIMALS) for p in probabilities),
    )


def _read(path: Path) -> Recording:
    try:
        recording = Recording.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise SelfTestError(
            f"no {path.name} in {path.parent}: record one where the answers are known to be right"
        ) from None
    except OSError as error:
        raise SelfTestError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise SelfTestError(f"{path} is no recording of `openjev selftest record`: {where}: {first['msg']}") from None
    expected = {prompt.name: {question.id for question in prompt.questions} for prompt in PROMPTS}
    if {name: set(questions) for name, questions in recording.prompts.items()} != expected:
        raise SelfTestError(f"{path} was recorded with other prompts: record it anew")
    return recording


def _check_bound(recording: Recording, weights_hash: str, compiler: Compiler) -> None:
    own = (compiler.template.id, compiler.template.hash)
    if recording.weights_hash != weights_hash:
        raise SelfTestError(f"recorded for weights {recording.weights_hash}, these are {weights_hash}")
    if (recording.template, recording.template_hash) != own:
        raise SelfTestError(
            f"recorded under template {recording.template} {recording.template_hash}, this is {own[0]} {own[1]}"
        )
