"""The routing measure: described options with names of our own, distracting metadata, long states.

States are held-out dialogues (sgd.service) and test requests (clinc150.domain); no option name is a label of any
training task, and the state carries a history and a footer that share words with wrong options.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from .rows import Row

__all__ = ["routing_rows"]

_SGD = {
    "Alarm": ("wake-up helper", "sets and lists times at which a device should ring"),
    "Banks": ("money counter", "balances, and moving funds from one account to another"),
    "Buses": ("coach seats", "road journeys between towns together with other passengers"),
    "Calendar": ("agenda keeper", "looks up and writes down personal appointments"),
    "Events": ("show tickets", "concerts and matches that somebody would like to attend"),
    "Flights": ("air travel", "going from one airport to another"),
    "Homes": ("property search", "places to live in and visits to see them"),
    "Hotels": ("overnight stays", "rooms for a night or longer away from home"),
    "Media": ("film streaming", "watching a film at home"),
    "Messaging": ("contact sharing", "sends where one is to people one knows"),
    "Movies": ("cinema desk", "films on a big screen, their hours and seats"),
    "Music": ("song player", "finding and playing tracks and albums"),
    "Payment": ("wallet transfers", "sending money to a person or asking a person for it"),
    "RentalCars": ("vehicle hire", "getting a car for some days and driving it oneself"),
    "Restaurants": ("dining desk", "places to eat out and a table there"),
    "RideSharing": ("taxi calls", "being driven across town now"),
    "Services": ("practitioner visits", "seeing a dentist, doctor, therapist or hair stylist"),
    "Trains": ("rail desk", "journeys on rails"),
    "Travel": ("sights guide", "things worth seeing in a city"),
    "Weather": ("forecast desk", "rain, wind and temperature at a place and day"),
}
_CLINC = {
    "auto and commute": ("driver desk", "cars, fuel, tyres, traffic and the way to a place"),
    "banking": ("savings counter", "accounts, transfers, balances and bills"),
    "credit cards": ("plastic desk", "the card itself: its limit, points, rate, loss or rejection"),
    "home": ("household helper", "lists, shopping, chores, music and smart devices where one lives"),
    "kitchen and dining": ("cooking line", "recipes, ingredients, calories and places to eat"),
    "meta": ("assistant settings", "how the assistant itself behaves: its name, voice, language and volume"),
    "small talk": ("chit-chat", "greetings, jokes and questions about the assistant as if it were a person"),
    "travel": ("journey planner", "flights, hotels, visas, luggage and vaccinations before a trip"),
    "utility": ("quick tools", "alarms, timers, weather, sums, dates, definitions and phone calls"),
    "work": ("employee desk", "pay, holidays, insurance, meetings and retirement savings"),
}
_FILLER = (
    "This conversation may be recorded for training and quality purposes and is kept for ninety days.",
    "The customer agreed to the terms of use and to the privacy notice on the first visit.",
    "Opening hours are from eight in the morning until six in the evening, closed on public holidays.",
    "Earlier contacts of this customer were answered within one working day and rated four out of five.",
    "Please keep a friendly tone, use short sentences, and never share personal details of other people.",
    "The address on file has been checked. The preferred language is English. No special needs are noted.",
    "A satisfaction survey is sent two days after a case was closed; the customer took part in two of them.",
    "The case was opened automatically and has not been assigned to a person yet.",
)
_TAIL = (
    "account age {n} months; open tickets {d}; last topic: {o}",
    "tags: {o}, {p}; satisfaction {d}/10",
    "note from last year: was helped by {o}",
    "previous owner of the case: {o} | backup: {p} | contacts so far: {d}",
)
_ASK = (
    "Which desk should take this?",
    "Route the conversation to one desk.",
    "Who is responsible for what the user wants now?",
)


def _row(
    rng: random.Random, task: str, state: str, label: str, table: dict[str, tuple[str, str]], *, long: bool
) -> Row:
    others = rng.sample([k for k in table if k != label], rng.choice([3, 5, 7]))
    keys = [label, *others]
    rng.shuffle(keys)
    tail = rng.choice(_TAIL).format(
        n=rng.randrange(2, 90), d=rng.randrange(0, 9), o=table[others[0]][0], p=table[others[1]][0]
    )
    parts = [state, tail]
    if long:
        filler = [rng.choice(_FILLER) for _ in range(rng.choice([8, 14, 22]))]
        cut = rng.randrange(len(filler))
        parts = [" ".join(filler[:cut]), state, " ".join(filler[cut:]), tail]
    names = tuple(table[k][0] for k in keys)
    texts = tuple(table[k][1] for k in keys)
    return Row(
        task, "choice", "\n".join(p for p in parts if p), rng.choice(_ASK), names, texts, keys.index(label), None
    )


def routing_rows(sgd: Iterable[Row], clinc: Iterable[Row], *, seed: int = 7) -> list[Row]:
    """Rows of two tasks, `routing.sgd` and `routing.clinc`, half of them with long states."""
    rng = random.Random(seed)
    out = []
    for task, rows, table in (("routing.sgd", sgd, _SGD), ("routing.clinc", clinc, _CLINC)):
        for i, row in enumerate(rows):
            label = row.names[row.gold]
            if label in table:
                out.append(_row(rng, task, row.state, label, table, long=i % 2 == 0))
    return out
