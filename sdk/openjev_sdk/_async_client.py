"""The client for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

import httpx

from openjev_sdk._answers import Decision, Model
from openjev_sdk._config import Timeout, resolve_config
from openjev_sdk._constants import (
    DEFAULT_CONCURRENCY,
    DEFAULT_MAX_RETRIES,
    DEFAULT_RETRY_BUDGET_S,
    DEFAULT_TIMEOUT_S,
)
from openjev_sdk._errors import OpenJevError
from openjev_sdk._map import OnError, check_map, map_async
from openjev_sdk._options import Options
from openjev_sdk._questions import Questions, Text, question_bodies
from openjev_sdk._request import PreparedRequest, models_request, system_one_request
from openjev_sdk._response import parse_decision, parse_models
from openjev_sdk._retry import SYSTEM_CLOCK, Clock, Retries, retry_async
from openjev_sdk._schema import SchemaDecision, SchemaModel, plan_for
from openjev_sdk._transport import LIMITS, check_open, checked, connection_errors

__all__ = ["AsyncClient"]

M = TypeVar("M", bound=SchemaModel)


class AsyncClient:
    """Asks a System One host: OpenJev, or the hosted API. One event loop, any number of tasks; close it after use.

    Args:
        base_url: Root of the host. Unset: `OPENJEV_BASE_URL`, `TYPESAFE_BASE_URL`, `http://127.0.0.1:8000`.
        api_key: Unset: `OPENJEV_API_KEY`, `TYPESAFE_API_KEY`, none.
        model: Default of `decide`. Unset: `OPENJEV_DEFAULT_MODEL`, `TYPESAFE_DEFAULT_MODEL`, `jev-latest`.
        timeout: Seconds for each phase of one attempt (connect, write, read), or an `httpx.Timeout`.
        max_retries: Attempts after the first one, on 408, 429, 5xx, failed connections and timeouts.
        retry_budget: Seconds from the first attempt after which no retry starts; None for no limit.
        headers: More headers for every request.
        transport: Carries the requests in place of the network; closed with the client.
        clock: Time, sleep and chance of the retries.

    Raises:
        UsageError: a setting that cannot work.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        model: str | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        max_retries: int = DEFAULT_MAX_RETRIES,
        retry_budget: float | None = DEFAULT_RETRY_BUDGET_S,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config = resolve_config(base_url=base_url, api_key=api_key, model=model, timeout=timeout, headers=headers)
        self._retries = Retries(max_retries, retry_budget)
        self._clock = clock
        self._http = httpx.AsyncClient(limits=LIMITS, transport=transport)

    @overload
    async def decide(
        self,
        state: Text,
        questions: Questions,
        *,
        model: str | None = None,
        options: Options | None = None,
        timeout: Timeout | None = None,
    ) -> Decision: ...

    @overload
    async def decide(
        self,
        state: Text,
        *,
        schema: type[M],
        model: str | None = None,
        options: Options | None = None,
        timeout: Timeout | None = None,
    ) -> SchemaDecision[M]: ...

    @overload
    async def decide(
        self,
        state: Text,
        *,
        schema: Mapping[str, Any],
        model: str | None = None,
        options: Options | None = None,
        timeout: Timeout | None = None,
    ) -> SchemaDecision[Any]: ...

    async def decide(
        self,
        state: Text,
        questions: Questions | None = None,
        *,
        schema: Mapping[str, Any] | type[M] | None = None,
        model: str | None = None,
        options: Options | None = None,
        timeout: Timeout | None = None,
    ) -> Decision | SchemaDecision[Any]:
        """Answer questions about a state, or fill in a schema.

        Args:
            state: What the questions are about: a string, or JSON that the model reads as such.
            questions: `Noul`, `Choice`, `Score` or plain mappings, under ids of your choice.
            schema: In place of questions: a JSON Schema, or a pydantic model class, of objects, booleans, enums, and
                integers whose values are described; the README of this package has the table.
            model: Other than the client's default.
            options: Switches of OpenJev hosts.
            timeout: Other than the client's default.

        Raises:
            UsageError: nothing was sent. `SchemaError`: because of the schema.
            APIError: the host refused or failed, after the retries.
            APIConnectionError: no response arrived, after the retries.
        """
        plan = plan_for(questions, schema)
        request = system_one_request(self._config, state, plan.questions, model=model, options=options, timeout=timeout)
        return plan.finish(parse_decision(await self._send(request)))

    @overload
    def map(
        self,
        states: Iterable[Text] | AsyncIterable[Text],
        questions: Questions,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        on_error: Literal["raise"] = "raise",
        model: str | None = None,
        options: Options | None = None,
        timeout: Timeout | None = None,
    ) -> AsyncGenerator[Decision, None]: ...

    @overload
    def map(
        self,
        states: Iterable[Text] | AsyncIterable[Text],
        questions: Questions,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        on_error: OnError,
        model: str | None = None,
        options: Options | None = None,
        timeout: Timeout | None = None,
    ) -> AsyncGenerator[Decision | OpenJevError, None]: ...

    def map(
        self,
        states: Iterable[Text] | AsyncIterable[Text],
        questions: Questions,
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        on_error: OnError = "raise",
        model: str | None = None,
        options: Options | None = None,
        timeout: Timeout | None = None,
    ) -> AsyncGenerator[Decision | OpenJevError, None]:
        """Decide each state, `concurrency` at a time, in order.

        Lazy: nothing is sent before the first result is taken, and at most `concurrency` states are drawn ahead of
        the results, so an endless iterable works. Closing the iterator early cancels what is on its way.

        Args:
            states: Drawn in the task that takes the results; an async iterable is fine.
            questions: The same for every state.
            concurrency: Requests on their way at a time.
            on_error: "raise" an `OpenJevError` where its result would be, or "return" it there.
            model: As in `decide`.
            options: As in `decide`.
            timeout: As in `decide`.

        Raises:
            UsageError: one state in place of many, a question that cannot be sent, a concurrency below 1, or an unknown
                `on_error`.
        """
        check_map(states, concurrency, on_error)
        asked = question_bodies(questions)

        async def call(state: Text) -> Decision:
            return await self.decide(state, asked, model=model, options=options, timeout=timeout)

        return map_async(call, states, concurrency, on_error)

    async def models(self, *, timeout: Timeout | None = None) -> tuple[Model, ...]:
        """The models that the host offers.

        Raises:
            APIError: the host refused or failed, after the retries.
            APIConnectionError: no response arrived, after the retries.
        """
        return parse_models(await self._send(models_request(self._config, timeout=timeout)))

    async def aclose(self) -> None:
        """Close the connections and the transport."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, request: PreparedRequest) -> httpx.Response:
        async def attempt(retries: int) -> httpx.Response:
            with connection_errors(request):
                check_open(self._http.is_closed)
                response = await self._http.request(**request.arguments(retries))
            return checked(response)

        return await retry_async(attempt, self._retries, self._clock)
