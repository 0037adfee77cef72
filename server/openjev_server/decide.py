"""One request's way from typed questions to the answer, one arrow after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from openjev_server.admission import Overloaded
from openjev_server.bundle import ModelBundle
from openjev_server.calibration import IDENTITY, UNCALIBRATED, Calibration, Calibrations, mark
from openjev_server.calibration.prior import PRIOR_SUFFIX, PriorCorrection
from openjev_server.canvas.compile import CanvasTooWide, CompiledRequest, Compiler, Layout
from openjev_server.canvas.prompt import PromptError
from openjev_server.canvas.readout import read_out
from openjev_server.dispatch import Dispatcher
from openjev_server.engine.protocol import EngineInfo, EngineResult
from openjev_server.lengths import least_tokens, surely_longer, texts_of
from openjev_server.questions import Question
from openjev_server.settings import Settings, TokenLimits
from openjev_server.wire.answer import render_answer, render_response
from openjev_server.wire.errors import max_tokens_exceeded, overloaded, usage_error
from openjev_server.wire.models import ModelCatalog
from openjev_server.wire.overrides import Overrides
from openjev_server.wire.request import WireRequest

__all__ = ["Decider", "Decision", "decider_for", "off_the_loop"]

T = TypeVar("T")

INLINE_QUESTIONS = 32
"""Answers to more questions are read out and rendered in a worker thread."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An answered request."""

    body: dict[str, Any]
    """The response, ready for JSON."""
    fingerprint: str
    """What produced it: `<model>@<weights>/<template>/<layout>/<steps>/<dtype>/<calibration>`; steps as `2x8` where
    they were run with 8 noise replicas."""
    calibration: str
    """Which calibration was applied, see `calibration.mark`; `none` where there is none for this layout and number of
    steps, or these types of questions. With `+prior` where answers were corrected by earlier ones."""
    queue_ms: float
    model_ms: float


async def off_the_loop(work: Callable[[], T], *, large: bool) -> T:
    """Runs small work in place, and large work in a thread so that other requests keep moving."""
    return await asyncio.to_thread(work) if large else work()


class Decider:
    """Walks the arrows for one parsed request at a time; holds what they need and no state of its own."""

    def __init__(
        self,
        compiler: Compiler,
        admission: Dispatcher,
        catalog: ModelCatalog,
        *,
        info: EngineInfo,
        limits: TokenLimits,
        retry_after_s: int = 1,
        calibrations: Calibrations | None = None,
        prior: PriorCorrection | None = None,
    ) -> None:
        """An answer for which there is no calibration stays as it was read; `prior` None corrects nothing."""
        self._compiler = compiler
        self._admission = admission
        self._catalog = catalog
        self._info = info
        self._limits = limits
        self._retry_after_s = retry_after_s
        self._calibrations = calibrations or Calibrations()
        self._prior = prior

    @property
    def catalog(self) -> ModelCatalog:
        """The names it answers to."""
        return self._catalog

    @property
    def calibrations(self) -> Calibrations:
        """What it applies."""
        return self._calibrations

    async def decide(
        self, request: WireRequest, overrides: Overrides, *, large: bool = False, client: str = ""
    ) -> Decision:
        """Answers a request; `large` moves its compilation off the event loop, `client` is whose earlier answers may
        correct it.

        Raises:
            WireError: unknown model, too many tokens, what the template cannot ask, or an overloaded server.
            EngineError: the engine could not evaluate it.
        """
        model = self._catalog.resolve(request.model)
        compiled = await off_the_loop(lambda: self._compile(request, overrides), large=large)
        try:
            result = await self._admission.submit(compiled.request)
        except Overloaded:
            raise overloaded(self._retry_after_s) from None
        many = len(request.questions) > INLINE_QUESTIONS or self._prior is not None
        body = await off_the_loop(lambda: self._answer(request, compiled, result, model, overrides, client), large=many)
        calibration = self._mark(request.questions, overrides)
        fingerprint = f"{self._fingerprint(overrides)}/{calibration}"
        return Decision(body, fingerprint, calibration, result.queue_ms, result.model_ms)

    def _fingerprint(self, overrides: Overrides) -> str:
        """What would answer under these settings, in printable ASCII, but for the calibration."""
        weights = f"{quote(self._catalog.concrete)}@{self._info.weights_hash}"
        steps = str(overrides.steps) if overrides.replicas == 1 else f"{overrides.steps}x{overrides.replicas}"
        how = f"{self._compiler.template.id}/{overrides.layout}/{steps}"
        return f"{weights}/{how}/{self._info.dtype}"

    def _calibration(self, overrides: Overrides) -> Calibration:
        return self._calibrations.choose(overrides.layout, overrides.steps) if overrides.calibrated else IDENTITY

    def _mark(self, questions: Sequence[Question], overrides: Overrides) -> str:
        if not overrides.calibrated:
            return UNCALIBRATED
        return mark(self._calibration(overrides), questions) + (PRIOR_SUFFIX if self._prior is not None else "")

    def _compile(self, request: WireRequest, overrides: Overrides) -> CompiledRequest:
        if least_tokens(request) > self._limits.total:
            raise max_tokens_exceeded()
        if surely_longer(self._compiler.tokenizer, texts_of(request), self._limits.total):
            raise max_tokens_exceeded()
        try:
            compiled = self._compiler.compile(
                request.state,
                request.questions,
                layout=Layout(overrides.layout),
                steps=overrides.steps,
                replicas=overrides.replicas,
            )
        except CanvasTooWide:
            raise max_tokens_exceeded() from None
        except PromptError as error:  # an owner's template that cannot show this state or these questions
            raise usage_error(f"Template {self._compiler.template.id} cannot ask this: {error}") from None
        self._check_length(compiled)
        return compiled

    def _check_length(self, compiled: CompiledRequest) -> None:
        state = len(compiled.request.state)
        last_position = max(
            (state + len(block.suffix) + block.canvases.shape[1] for block in compiled.request.blocks), default=state
        )
        if (
            compiled.request.tokens > self._limits.total
            or compiled.longest_prompt > self._limits.prompt
            or last_position > self._info.max_positions
        ):
            raise max_tokens_exceeded()

    def _answer(
        self,
        request: WireRequest,
        compiled: CompiledRequest,
        result: EngineResult,
        model: str,
        overrides: Overrides,
        client: str,
    ) -> dict[str, Any]:
        calibration = self._calibration(overrides)
        answers = {}
        for question, read in zip(request.questions, read_out(compiled, result), strict=True):
            probabilities = calibration.apply(question, read.tolist())
            if self._prior is not None and overrides.calibrated:
                how = f"{overrides.layout}/{overrides.steps}/{overrides.replicas}"
                probabilities = self._prior.apply(client, how, question, probabilities)
            answers[question.id] = render_answer(question, probabilities, decimals=overrides.decimals)
        return render_response(model, answers, compiled.usage)


def decider_for(bundle: ModelBundle, dispatcher: Dispatcher, info: EngineInfo, settings: Settings) -> Decider:
    """Everything in front of `dispatcher`, whose engines say `info`. Raises CalibrationError."""
    prior = PriorCorrection(window=settings.prior_window, memory_bytes=settings.prior_memory_bytes)
    return Decider(
        Compiler(bundle.tokenizer, bundle.template, cache_bytes=settings.question_cache_bytes),
        dispatcher,
        ModelCatalog(bundle.id, accept_pinned=settings.accept_pinned_models),
        info=info,
        limits=settings.token_limits(info.device),
        retry_after_s=settings.retry_after_s,
        calibrations=bundle.calibrations(info, setting=settings.calibration, adapter=settings.adapter),
        prior=prior if settings.prior_correction else None,
    )
