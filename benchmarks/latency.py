"""Latency over HTTP: `python benchmarks/latency.py [--url http://127.0.0.1:8000]`.

One client, one connection that stays open, one request at a time: five questions (two yes/no, two choices, one score)
about a state of about 500 tokens. Requests differ in their state, so that nothing can be answered from a cache. What
the first requests cost is left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

__all__ = ["Latency", "measure", "request", "summarise"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "latency.json"
SENTENCES = (
    "I ordered two lamps from your shop in {town} on the third of {month}, and only one of them arrived.",
    "The box was open on one side, the cable was missing, and the invoice shows the full price of both.",
    "I called twice this week and waited for half an hour each time before the line went dead.",
    "Your colleague in the chat told me that the parcel was handed to my neighbour, who knows nothing about it.",
    "Please send the second lamp with the right cable, or give me back what I paid for it and for the delivery.",
    "If I hear nothing until the end of the month, I will leave the matter to my bank and order elsewhere.",
)
TOWNS = ("Leeds", "Porto", "Graz", "Turku", "Gdansk", "Lyon", "Bergen", "Brno")
MONTHS = ("January", "March", "May", "July", "August", "October", "December")
SENTENCES_PER_STATE = 22
QUESTIONS: dict[str, dict[str, Any]] = {
    "urgent": {"type": "noul", "instructions": "Does the customer set a deadline?"},
    "refund": {"type": "noul", "instructions": "Does the customer ask for money back?"},
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": {"delivery": "Parcels", "billing": "Invoices and refunds", "sales": "New orders", "other": None},
    },
    "channel": {
        "type": "choice",
        "instructions": "Which channel did the customer use first?",
        "criteria": {"phone": None, "chat": None, "letter": None},
    },
    "anger": {
        "type": "score",
        "instructions": "How angry is the customer?",
        "criteria": ["calm", "annoyed", "furious"],
    },
}


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds, as the client sees them."""

    fingerprint: str
    machine: str
    requests: int
    input_tokens: int
    """Of the longest request: the state once and every question."""
    p50: float
    p95: float
    fastest: float
    slowest: float


def request(number: int) -> dict[str, Any]:
    """The request of this number; its state is its own."""
    lines = [
        SENTENCES[i % len(SENTENCES)].format(
            town=TOWNS[(number + i) % len(TOWNS)], month=MONTHS[(number * 3 + i) % len(MONTHS)]
        )
        for i in range(SENTENCES_PER_STATE)
    ]
    return {"state": f"Ticket {number}. " + " ".join(lines), "model": "jev-latest", "questions": QUESTIONS}


def measure(client: httpx.Client, requests: int, warm_up: int) -> tuple[str, list[int], list[float]]:
    """The fingerprint, and per measured request its input tokens and its milliseconds. Raises httpx.HTTPError."""
    fingerprint, tokens, times = "", [], []
    for number in range(warm_up + requests):
        content = json.dumps(request(number)).encode()
        started = time.perf_counter()
        response = client.post("/v1/systemone", content=content, headers={"Content-Type": "application/json"})
        took = (time.perf_counter() - started) * 1000
        response.raise_for_status()
        if number >= warm_up:
            fingerprint = response.headers.get("x-openjev-fingerprint", response.json()["model"])
            tokens.append(response.json()["usage"]["input_tokens"])
            times.append(took)
    return fingerprint, tokens, times


def summarise(fingerprint: str, tokens: list[int], times: list[float], machine: str) -> Latency:
    cuts = statistics.quantiles(times, n=20, method="inclusive")
    return Latency(
        fingerprint=fingerprint,
        machine=machine,
        requests=len(times),
        input_tokens=max(tokens),
        p50=round(statistics.median(times), 1),
        p95=round(cuts[18], 1),
        fastest=round(min(times), 1),
        slowest=round(max(times), 1),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server (default %(default)s)")
    parser.add_argument("--api-key", help="its key")
    parser.add_argument("--requests", type=int, default=40, help="measured requests, at least 2 (default %(default)s)")
    parser.add_argument("--warm-up", type=int, default=5, help="requests before them (default %(default)s)")
    parser.add_argument("--machine", default=f"{platform.machine()}", help="what the result says about the hardware")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the result as JSON (default %(default)s)")
    chosen = parser.parse_args()
    if chosen.requests < 2:
        parser.error("--requests must be at least 2")
    headers = {"Authorization": f"Bearer {chosen.api_key}"} if chosen.api_key else {}
    with httpx.Client(base_url=chosen.url, headers=headers, timeout=120, trust_env=False) as client:
        result = summarise(*measure(client, chosen.requests, chosen.warm_up), chosen.machine)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    print(f"{result.fingerprint}: {len(QUESTIONS)} questions, {result.input_tokens} tokens, {result.requests} requests")
    print(f"p50 {result.p50} ms, p95 {result.p95} ms ({result.fastest} to {result.slowest})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
