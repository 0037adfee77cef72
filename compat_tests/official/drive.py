"""Drives the official Python client as its users do and prints what it saw as JSON.

Runs in the client's own environment (typesafe-sdk 0.6.0 and 0.7.5); the server and the key come from TYPESAFE_BASE_URL
and TYPESAFE_API_KEY. `python drive.py answers|errors|refused|long`.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import typesafe_sdk
from typesafe_sdk import AsyncTypeSafeClient, Choice, Noul, Score, SystemOneResponse, TypeSafeAPIError, TypeSafeClient

TICKET = "I was charged twice for the same order. I need the extra charge refunded today."
LEVELS = ["No time pressure.", "Within a few days.", "Today."]


def questions() -> dict[str, Any]:
    return {
        "refund": Noul(instructions="Is the customer asking for a refund?"),
        "queue": Choice(
            instructions="Which team should handle this message?",
            criteria={"billing": "Payments, invoices, refunds", "technical": None, "sales": "Prices, upgrades"},
        ),
        "urgency": Score(instructions="How soon is an answer needed?", criteria=LEVELS),
        "raw": {"type": "noul", "instructions": None, "criteria": {"true": "The customer is angry."}},
    }


def seen(response: SystemOneResponse) -> dict[str, Any]:
    """The parsed response, read through the client's own typed accessors."""
    queue, urgency = response.choices["queue"], response.scores["urgency"]
    return {
        "model": response.model,
        "request_id": response.request_id,
        "ids": list(response.answers),
        "nouls": {name: answer.noul for name, answer in response.nouls.items()},
        "queue": {"choice": queue.choice, "confidence": queue.confidence, "probabilities": dict(queue.probabilities)},
        "urgency": {
            "score": urgency.score,
            "confidence": urgency.confidence,
            "legend": {str(level): text for level, text in urgency.legend.items()},
            "probabilities": {str(level): p for level, p in urgency.probabilities.items()},
        },
        "usage": [response.usage.input_tokens, response.usage.output_tokens],
    }


async def asynchronously() -> dict[str, Any]:
    async with AsyncTypeSafeClient() as client:
        first, second = await asyncio.gather(
            client.system_one(state=TICKET, questions=questions()),
            client.system_one(state={"message": TICKET}, questions=questions(), model="jev-1.14.0"),
        )
        listing = await client.models.list()
    return {"string": seen(first), "object": seen(second), "models": [model.name for model in listing.models]}


def answers() -> dict[str, Any]:
    with TypeSafeClient() as client:
        first = client.system_one(state=TICKET, questions=questions())
        listing = client.models.list()
    return {
        "version": typesafe_sdk.__version__,
        "sync": seen(first),
        "models": [[model.name, model.description, model.release_date] for model in listing.models],
        "async": asyncio.run(asynchronously()),
    }


def failure(call: Callable[[], object]) -> dict[str, Any]:
    try:
        call()
    except TypeSafeAPIError as error:
        return {
            "class": type(error).__name__,
            "status": error.status,
            "request_id": error.request_id,
            "message": str(error),
        }
    return {"class": None}


def errors() -> dict[str, Any]:
    with TypeSafeClient() as client:

        def ask(question: dict[str, Any], **options: Any) -> Callable[[], object]:
            return lambda: client.system_one(state="s", questions={"q": question}, **options)

        noul = {"type": "noul", "instructions": "x?"}
        many = {f"option {number}": None for number in range(256)}
        return {
            "unknown model": failure(ask(noul, model="jev-1.13")),
            "unknown type": failure(ask({"type": "essay", "instructions": "x?"})),
            "box": failure(ask({"type": "box", "instructions": "Where?"})),
            "too many options": failure(ask({"type": "choice", "criteria": many})),
            "no such field": failure(ask(noul, extra_body={"temperature": 0})),
            "invalid": failure(ask({"type": "choice", "criteria": ["a", "b"]})),
        }


def refused() -> dict[str, Any]:
    with TypeSafeClient() as client:
        return {
            "ask": failure(lambda: client.system_one(state="s", questions=questions())),
            "models": failure(client.models.list),
        }


def long() -> dict[str, Any]:
    with TypeSafeClient() as client:
        return seen(client.system_one(state=TICKET * 20, questions=questions()))


if __name__ == "__main__":
    print(json.dumps({"answers": answers, "errors": errors, "refused": refused, "long": long}[sys.argv[1]]()))
