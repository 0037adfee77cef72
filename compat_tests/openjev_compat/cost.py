"""Latency percentiles and cost per 1,000 decisions of one side's requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .fixture import Fixture

__all__ = ["Cost", "Latency", "Prices", "latency_of", "price_of", "request_latencies"]


@dataclass(frozen=True, slots=True)
class Prices:
    """What a decision costs: per million input tokens (a hosted API), or per hour of the machine (your own)."""

    usd_per_million_input: float | None = None
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds per request, as the client saw them."""

    requests: int
    decisions: int
    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars per 1,000 decisions, and what it was computed from."""

    usd_per_1000: float
    basis: str


def request_latencies(fixtures: Iterable[Fixture]) -> dict[tuple[str, str | None], float]:
    """Milliseconds by request: the questions of one node of one case travelled together."""
    return {(fixture.case, fixture.node): fixture.latency_ms for fixture in fixtures if fixture.latency_ms is not None}


def latency_of(fixtures: Iterable[Fixture]) -> Latency | None:
    timed = [fixture for fixture in fixtures if fixture.latency_ms is not None]
    if not timed:
        return None
    values = list(request_latencies(timed).values())
    p50, p90, p95, p99 = (float(value) for value in np.percentile(values, [50, 90, 95, 99]))
    return Latency(requests=len(values), decisions=len(timed), p50=p50, p90=p90, p95=p95, p99=p99)


def price_of(fixtures: Iterable[Fixture], prices: Prices, *, wall_s: float | None) -> Cost | None:
    """Billed tokens times their price, or wall-clock time times the machine's price; None when neither is known."""
    answered = list(fixtures)
    if not answered:
        return None
    if prices.usd_per_million_input is not None:
        metered = [fixture.usage for fixture in answered if fixture.usage is not None]
        if not metered:
            return None
        tokens = sum(usage.input_tokens / usage.questions for usage in metered)
        usd = tokens / len(metered) * 1000 * prices.usd_per_million_input / 1e6
        basis = f"{tokens / len(metered):.0f} input tokens a decision, ${prices.usd_per_million_input:g} per million"
        return Cost(usd_per_1000=usd, basis=basis)
    if prices.usd_per_hour is not None and wall_s is not None:
        usd = wall_s / 3600 * prices.usd_per_hour / len(answered) * 1000
        basis = f"{len(answered)} decisions in {wall_s:.1f} s, ${prices.usd_per_hour:g} an hour"
        return Cost(usd_per_1000=usd, basis=basis)
    return None
