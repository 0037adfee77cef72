"""Everyday tickets, reviews, emails and log lines of our own writing, with the answers a person would give.

They are for looking at (the model card lists them, failures included), not for tuning.
"""

from __future__ import annotations

from openjev_server.questions import Choice, Noul, Option, Question, Score, Text

__all__ = ["CASES"]


def _choice(text: str, *options: str) -> Choice:
    parts = (o.split(": ", 1) for o in options)
    return Choice("q", text, tuple(Option(p[0], p[1] if len(p) == 2 else None) for p in parts))


CASES: tuple[tuple[Text, tuple[tuple[Question, int], ...]], ...] = (
    (
        "Hi, I was charged twice for my October invoice and nobody answers my emails. Refund me today or I'll cancel.",
        (
            (_choice("Which team should handle this?", "billing", "technical support", "sales"), 0),
            (Noul("q", "Is the customer threatening to leave?"), 0),
            (Score("q", "How upset is the customer?", ("calm", "annoyed", "very upset")), 2),
        ),
    ),
    (
        "The mobile app freezes on the splash screen since yesterday's update. Pixel 8, Android 15.",
        (
            (_choice("Route", "bugs: the product is broken", "billing: money", "how-to: questions on use"), 0),
            (Noul("q", "Does the message mention a phone model?"), 0),
        ),
    ),
    (
        "Could you tell me whether the Pro plan includes phone support? We are thinking of moving over next quarter.",
        (
            (_choice("Which team?", "sales", "refunds", "security", "engineering"), 0),
            (Noul("q", "Is the writer reporting an outage?"), 1),
        ),
    ),
    (
        "Great blender, crushes ice in seconds and is easy to clean. A bit loud, but I'd buy it again.",
        (
            (
                Score(
                    "q", "How satisfied is the buyer?", ("very unhappy", "unhappy", "neutral", "happy", "very happy")
                ),
                3,
            ),
            (Noul("q", "Would the reviewer buy the product again?"), 0),
        ),
    ),
    (
        "The hotel room smelled of smoke, the shower was cold and the staff shrugged. Never again.",
        (
            (Score("q", "Sentiment", ("negative", "mixed", "positive")), 0),
            (Noul("q", "Is the review positive?"), 1),
        ),
    ),
    (
        "2024-06-02T11:04:09Z ERROR payments charge failed: gateway timeout after 30s (order 5521)",
        (
            (_choice("Which component failed?", "payments", "search", "login", "mail"), 0),
            (Noul("q", "Does this line report a failure?"), 0),
            (Score("q", "Severity", ("informational", "warning", "error")), 2),
        ),
    ),
    (
        "2024-06-02T11:04:10Z INFO scheduler nightly backup finished in 84s",
        ((Noul("q", "Does this line report a failure?"), 1), (Noul("q", "Did the backup finish?"), 0)),
    ),
    (
        "Hello team, the quarterly report is attached. Please send comments by Friday noon. Best, Petra",
        (
            (
                _choice(
                    "What does the sender want?", "feedback on a document", "a meeting", "a payment", "a password reset"
                ),
                0,
            ),
            (Noul("q", "Is there a deadline?"), 0),
        ),
    ),
    (
        "CONGRATULATIONS!!! You have WON a free cruise. Click here within 24 hours and enter your card number.",
        ((Noul("q", "Is this spam or a scam?"), 0), (_choice("Label", "spam", "newsletter", "personal"), 0)),
    ),
    (
        {"subject": "Lunch on Thursday?", "body": "Are you free at 12:30? The new ramen place opened.", "from": "Jo"},
        ((Noul("q", "Is this spam or a scam?"), 1), (_choice("Kind of mail", "invitation", "invoice", "complaint"), 0)),
    ),
    (
        "I forgot my password and the reset link says it has expired.",
        (
            (
                _choice(
                    "Pick the queue.",
                    "Q1: signing in, passwords, locked accounts",
                    "Q2: parcels and couriers",
                    "Q3: invoices and refunds",
                    "Q4: none of these",
                ),
                0,
            ),
        ),
    ),
    (
        "Where is my package? Tracking has been stuck in Leipzig for nine days.\naccount age 39 months; open tickets 1",
        (
            (
                _choice(
                    "Which desk?",
                    "accounts: profile, age and ownership of an account",
                    "tickets: tickets to concerts and sports",
                    "delivery: late or lost parcels",
                ),
                2,
            ),
        ),
    ),
    (
        "The order total is $480. Orders over $500 need a manager's approval.",
        ((Noul("q", "Does this order need a manager's approval?"), 1), (Noul("q", "Is the total below $500?"), 0)),
    ),
    (
        {"customer": "Ada", "plan": "free", "seats": 3, "unpaid_invoices": 2},
        ((Noul("q", "Does the customer have unpaid invoices?"), 0), (_choice("Plan", "free", "pro", "enterprise"), 0)),
    ),
    (
        "Patient reports a mild headache since this morning, no fever, no allergies.",
        ((Noul("q", "Does the patient have a fever?"), 1), (Score("q", "Pain", ("none", "mild", "severe")), 1)),
    ),
    (
        "Can you move my dentist appointment from Tuesday to Wednesday afternoon?",
        ((_choice("Intent", "reschedule appointment", "cancel appointment", "book flight", "ask for prices"), 0),),
    ),
    (
        "The soup was delicious but the waiter was rude and we waited an hour for the bill.",
        (
            (Noul("q", "Did the guest like the food?"), 0),
            (Noul("q", "Was the service good?"), 1),
            (Score("q", "Overall", ("negative", "mixed", "positive")), 1),
        ),
    ),
    (
        "Meeting moved to room 4B, same time. No other changes.",
        ((Noul("q", "Was the time of the meeting changed?"), 1), (Noul("q", "Did the room change?"), 0)),
    ),
    (
        "Build failed: 3 tests failed in test_checkout.py, 212 passed. See the attached trace.",
        (
            (Noul("q", "Did all tests pass?"), 1),
            (_choice("How many tests failed?", "none", "three", "more than a hundred"), 1),
        ),
    ),
    (
        "Someone from another country signed in to my account and changed the email address. Help!",
        (
            (_choice("Route", "security: break-ins and fraud", "feedback: ideas", "shipping: parcels"), 0),
            (Noul("q", "Does this need a quick reaction?", "possible theft or harm", "anything that can wait"), 0),
        ),
    ),
)
