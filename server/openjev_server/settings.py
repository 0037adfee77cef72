"""Every limit and switch of the server, in one place, settable as OPENJEV_* in the environment.

Values given explicitly win over the environment; blank environment values count as not set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from openjev_server.auth import ApiKey, parse_api_keys

__all__ = ["Settings", "TokenLimits", "is_loopback"]

MIB = 1024 * 1024
LOOPBACK_NAMES = frozenset({"localhost", "::1"})


def is_loopback(host: str) -> bool:
    """Whether an address to bind can only be reached from this machine."""
    bare = host.strip("[]").lower()
    return bare in LOOPBACK_NAMES or (bare.startswith("127.") and bare.replace(".", "").isdigit())


def _keys(value: Any) -> Any:
    return parse_api_keys(value) if isinstance(value, str) else value


def _names(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """How long a request may be, in tokens."""

    total: int
    """State once, every question and every canvas."""
    prompt: int
    """State and the longest question."""

    @classmethod
    def default_for(cls, device: str) -> TokenLimits:
        """64k in total and 32k for state and longest question on CUDA; 8k and 8k elsewhere."""
        return cls(total=65_536, prompt=32_768) if device.startswith("cuda") else cls(total=8_192, prompt=8_192)


class Settings(BaseSettings):
    """The server's settings. Immutable; keys are kept as hashes and never shown."""

    model_config = SettingsConfigDict(
        env_prefix="OPENJEV_",
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    model: str = "nano"
    """`nano` (the embedded checkpoint), a checkpoint directory, or a hub id."""
    model_revision: str = "auto"
    """Commit, branch or tag of a hub id. `auto`: a pinned commit, or the one that was downloaded first."""
    adapter: str | None = None
    """A LoRA adapter to merge while loading: a directory or a hub id."""
    host: str = "127.0.0.1"
    """Address to bind. Anything but loopback needs keys, or `allow_unauthenticated`."""
    port: int = Field(default=8000, ge=0, le=65_535)
    """TCP port; 0 takes a free one and prints it."""

    layout: Literal["isolated", "grouped"] = "isolated"
    """Each question on its own canvas, or all questions on shared ones."""
    steps: int = Field(default=2, ge=1, le=8)
    """Denoising steps."""
    replicas: int = Field(default=1, ge=1, le=8)
    """Noise replicas that are averaged."""
    decimals: int = Field(default=2, ge=2, le=6)
    """Decimals of every number in an answer; 2 is what the original sends."""
    template: str = "auto"
    """Id of the canvas template, or a template file; `auto` takes the one that fits the checkpoint's tokenizer."""

    calibration: str = "auto"
    """`auto`: the checkpoint's own calibration, or one that OpenJev ships for it; `off`; or a file, which must have
    been fitted for these weights and this template."""
    prior_correction: bool = False
    """Whether answers are corrected by how earlier ones to the same question came out, for each API key by itself."""
    prior_window: int = Field(default=256, ge=1, le=65_536)
    """Answers to a question that count for that, the newest ones."""
    prior_memory_bytes: int = Field(default=16 * MIB, ge=64 * 1024)
    """Memory for such answers; the questions that were asked longest ago are forgotten."""

    unknown_fields: Literal["reject", "ignore"] = "reject"
    """What an unknown top-level field of a request leads to: 400, or nothing."""
    allow_overrides: bool = True
    """Whether `OpenJev-*` request headers may change layout, steps, replicas and decimals, and turn calibration off."""
    accept_pinned_models: bool = True
    """Whether the original's version ids (`jev-1.13.0`) are accepted and echoed."""

    api_keys: Annotated[tuple[ApiKey, ...], NoDecode, BeforeValidator(_keys)] = Field(default=(), repr=False)
    """Comma separated `name=key`, `name=sha256:<64 hex digits>` or bare keys; none: no authentication."""
    allow_unauthenticated: bool = False
    """Permits binding a non-loopback address without keys."""
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)] = ()
    """Comma separated origins that browsers may call from; `*` for any; default none."""

    max_body_bytes: int = Field(default=32 * MIB, ge=1)
    """Largest request body in bytes, as sent and again after decompression."""
    gzip_minimum_bytes: int = Field(default=200, ge=0)
    """Size from which an answer is compressed for a client that accepts gzip; smaller ones would only grow."""
    max_header_bytes: int = Field(default=65_536, ge=1024)
    """Largest request line and headers together, in bytes; more is answered 431."""
    receive_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds a request's head may take to arrive, and its body again; later is answered 408."""
    max_json_depth: int = Field(default=200, ge=4, le=500)
    """How deep a request's JSON may nest."""
    max_json_values: int = Field(default=131_072, ge=1000)
    """How many values (arrays, objects and their entries) a request's JSON may hold; more is answered 413."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Largest request in tokens: state, questions and canvases. None: 64k on CUDA, 8k on a CPU."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Largest state plus longest question in tokens. None: 32k on CUDA, 8k on a CPU."""
    max_queued_requests: int = Field(default=256, ge=1)
    """Requests that may wait for the engine; more are answered 529."""
    retry_after_s: int = Field(default=1, ge=0)
    """The `Retry-After` of a 529, in seconds."""
    token_budget: int = Field(default=8_192, ge=1)
    """Tokens of one of the engine's passes: waiting requests are packed up to it, larger ones go in chunks."""
    question_cache_bytes: int = Field(default=64 * MIB, ge=0)
    """Memory for compiled questions, found again by their content whoever asks them, about whatever state."""
    state_cache_bytes: int | None = Field(default=None, ge=0)
    """Memory for the keys and values of states that may come again. None: 40 % of a GPU's free memory, 256 MiB on a
    CPU."""
    keep_alive_s: int = Field(default=75, ge=1)
    """Seconds an idle connection stays open; official clients keep theirs for 30."""
    drain_timeout_s: float = Field(default=30.0, ge=0)
    """Seconds that a stopping server gives to requests it has already accepted."""

    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the model; `auto` takes what the device prefers."""
    weights: Literal["auto", "bfloat16", "float8", "int8", "int4"] = "auto"
    """How attention, dense MLP and experts are held: `auto` as the checkpoint has them (on a CPU not quantised),
    `bfloat16` not quantised, `float8`, `int8` (on a CPU, faster and less exact) and `int4` quantised while
    loading where they are not already."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of an engine; None leaves the choice to torch, and shares the cores out between engine processes."""
    engines: int | None = Field(default=None, ge=0, le=64)
    """Engine processes behind the HTTP server; 0: the engine runs in the server's. None: one per GPU, 0 on a CPU."""
    engine_window: int = Field(default=64, ge=1)
    """Requests that an engine process has at a time; the rest waits in front, where it survives the process."""
    restart_delay_s: float = Field(default=0.5, gt=0)
    """Seconds until a dead engine process is started again; doubled with every death in a row."""
    restart_delay_max_s: float = Field(default=30.0, gt=0)
    """The longest such wait in seconds; a process that lived longer than that starts counting anew."""

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if not (isinstance(value, str) and not value.strip())}

    def token_limits(self, device: str) -> TokenLimits:
        """The limits that hold once the engine's device is known."""
        default = TokenLimits.default_for(device)
        return TokenLimits(
            total=default.total if self.max_total_tokens is None else self.max_total_tokens,
            prompt=default.prompt if self.max_prompt_tokens is None else self.max_prompt_tokens,
        )
