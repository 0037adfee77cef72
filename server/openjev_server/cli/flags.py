"""Flags that several commands share, each the setting of the same name."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openjev_server.cli.failure import failed
from openjev_server.engine.released import DIFFUSIONGEMMA_26B_A4B

if TYPE_CHECKING:
    from openjev_server.settings import Settings

__all__ = [
    "ANSWER_FLAGS",
    "ENGINE",
    "ENGINE_FLAGS",
    "Adapter",
    "Calibration",
    "Decimals",
    "Device",
    "Dtype",
    "DtypeName",
    "Layout",
    "LayoutName",
    "Model",
    "ReleasedModel",
    "Replicas",
    "Revision",
    "Steps",
    "Template",
    "Threads",
    "TokenBudget",
    "WeightName",
    "Weights",
    "flag_of",
    "released_settings",
    "settings_from",
]


class LayoutName(StrEnum):
    isolated = "isolated"
    grouped = "grouped"


class DtypeName(StrEnum):
    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"


class WeightName(StrEnum):
    auto = "auto"
    bfloat16 = "bfloat16"
    float8 = "float8"
    int8 = "int8"
    int4 = "int4"


FLAGS = {"model_revision": "revision"}
"""Settings whose flag has a shorter name."""
ANSWER_FLAGS = ("layout", "steps", "replicas", "decimals")
"""What may be chosen for each request."""
ENGINE_FLAGS = ("calibration", "template", "device", "dtype", "threads", "weights", "adapter", "model_revision")
"""What is chosen when a checkpoint is loaded."""
ENGINE = "Engine"
ANSWERS = "Answers"

_MODELS = "nano (the embedded checkpoint), a checkpoint directory, or a hub id. Default:"
Model = Annotated[str | None, typer.Option(help=f"{_MODELS} nano.")]
ReleasedModel = Annotated[str | None, typer.Option(help=f"{_MODELS} {DIFFUSIONGEMMA_26B_A4B}.")]
"""The same for commands about the released model; see `released_settings`."""
Layout = Annotated[
    LayoutName | None,
    typer.Option(help="Each question alone, or all on shared canvases. Default: isolated.", rich_help_panel=ANSWERS),
]
Steps = Annotated[int | None, typer.Option(min=1, max=8, help="Denoising steps. Default: 2.", rich_help_panel=ANSWERS)]
Replicas = Annotated[
    int | None, typer.Option(min=1, max=8, help="Noise replicas to average. Default: 1.", rich_help_panel=ANSWERS)
]
Decimals = Annotated[
    int | None, typer.Option(min=2, max=6, help="Decimals of every number. Default: 2.", rich_help_panel=ANSWERS)
]
Calibration = Annotated[
    str | None,
    typer.Option(
        help="A calibration file, or off. Default: what fits the checkpoint, if anything.", rich_help_panel=ANSWERS
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        help="Id of the canvas template (the version may be left out), or a template file. "
        "Default: what fits the tokenizer.",
        rich_help_panel=ENGINE,
    ),
]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N. Default: auto.", rich_help_panel=ENGINE)]
Dtype = Annotated[
    DtypeName | None,
    typer.Option(help="Arithmetic of the model. Default: what the device prefers.", rich_help_panel=ENGINE),
]
Revision = Annotated[
    str | None,
    typer.Option(
        "--revision", help="Commit, branch or tag of a hub id. Default: a pinned commit.", rich_help_panel=ENGINE
    ),
]
Adapter = Annotated[
    str | None, typer.Option(help="LoRA adapter to merge: a directory or a hub id.", rich_help_panel=ENGINE)
]
Weights = Annotated[
    WeightName | None,
    typer.Option(help="Quantise the weights while loading. Default: as stored.", rich_help_panel=ENGINE),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="CPU threads of the engine. Default: torch's.", rich_help_panel=ENGINE)
]
TokenBudget = Annotated[
    int | None, typer.Option(min=256, help="Tokens of one pass. Default: 8192.", rich_help_panel=ENGINE)
]


def flag_of(setting: str) -> str:
    """`--revision` for `model_revision`."""
    return f"--{FLAGS.get(setting, setting).replace('_', '-')}"


def released_settings(**flags: Any) -> Settings:
    """`settings_from`, with the released model where neither a flag nor the environment names one."""
    settings = settings_from(**flags)
    if "model" in settings.model_fields_set:
        return settings
    return settings_from(**{**flags, "model": DIFFUSIONGEMMA_26B_A4B})


def settings_from(**flags: Any) -> Settings:
    """The settings of the environment, with the flags that were given on top.

    Raises typer.Exit (2) after naming every value that is not valid.
    """
    from pydantic import ValidationError

    from openjev_server.settings import Settings

    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        faults = []
        for entry in error.errors(include_url=False, include_input=False):
            name = ".".join(str(part) for part in entry["loc"])
            source = flag_of(name) if name in given else f"OPENJEV_{name.upper()}"
            faults.append(f"{source}: {entry['msg']}")
        raise failed("; ".join(faults), status=2) from None
