"""Everyday messages composed of a topic, a mood, a pressure and an ask; all our own words.

Every topic has several names and several descriptions, so that neither can be learned by heart, and distractor lines
that share words with the descriptions of other topics.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from openjev_server.questions import Choice, Noul, Option, Score, Text

from .augment import NONE_NAMES, random_names
from .examples import Example, Labelled, one_hot

__all__ = ["TOPICS", "Topic", "ticket"]


@dataclass(frozen=True, slots=True)
class Topic:
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    messages: tuple[str, ...]


def _topic(names: str, descriptions: str, messages: str) -> Topic:
    return Topic(*(tuple(x.strip() for x in t.split("|")) for t in (names, descriptions, messages)))


TOPICS = (
    _topic(
        "billing|invoices and payments|finance desk|accounts receivable",
        "invoices, charges, refunds and payment methods|anything about money the customer was asked to pay|questions on what was charged and why",
        "I was charged twice this month.|The invoice shows a fee that nobody told me about.|Why did my subscription price go up?|My refund from last week still has not arrived.|Please send me a receipt for the March payment.|The discount code was not applied to my bill.|You took $49 from my card although I am on the free tier.|Can I pay by bank transfer instead of card?",
    ),
    _topic(
        "technical support|bugs|engineering|product issues",
        "the software does not work as it should: crashes, errors, slowness|faults in the product that need a fix|something is broken or throws an error",
        "The app crashes every time I open the settings page.|Export to CSV gives me a blank file.|The page keeps loading and never finishes.|I get error 502 whenever I upload a picture.|Search returns nothing since the last update.|Notifications stopped working on my tablet.|The sync between phone and laptop is broken.|The print button does nothing.",
    ),
    _topic(
        "account access|login help|identity|sign-in problems",
        "signing in, passwords, two-factor codes and locked accounts|the user cannot get into the account|lost passwords and verification codes",
        "I forgot my password and the reset mail does not arrive.|My account is locked after three attempts.|The two-factor code is always rejected.|I lost my old phone and cannot log in any more.|How do I change the email address I sign in with?|It says my username does not exist.|Single sign-on sends me back to the start page.|Please unlock my profile.",
    ),
    _topic(
        "shipping|delivery|logistics|parcels",
        "where a parcel is, late or lost deliveries and addresses|the transport of goods to the customer|tracking numbers, couriers and delivery dates",
        "My package was supposed to arrive on Monday and it is Thursday.|The tracking page has not changed for a week.|The courier left the box at the wrong house.|Can you deliver to my office instead?|The parcel says delivered but I have nothing.|When will my order leave the warehouse?|Please change the delivery address before it ships.|Is express delivery possible to an island?",
    ),
    _topic(
        "returns|exchanges|damaged goods|warranty",
        "sending goods back, exchanges, broken or wrong items|the customer got the wrong or a faulty item|items that do not fit or arrived damaged",
        "The shoes are too small, I need a bigger size.|The vase arrived in pieces.|You sent me the blue one and I ordered green.|How do I send the jacket back?|The zip broke after two days.|The box was empty when I opened it.|I want to exchange the lamp for another model.|The toaster stopped heating after a week, it is still under guarantee.",
    ),
    _topic(
        "sales|new business|pre-sales|quotes",
        "interest in buying, quotes, plans and demos|people who are not customers yet and want to know what they can buy|prices for larger orders and product demonstrations",
        "We are forty people and would like a quote.|Do you offer a discount for schools?|Could someone show us a demo next week?|What is the difference between the two plans?|We are comparing vendors and need your price list.|Is there a trial for the larger package?|I would like to buy 200 licences.|Which edition is right for a small bakery?",
    ),
    _topic(
        "cancellation|retention|closing accounts|churn",
        "ending a subscription or closing an account|the customer wants to leave|requests to stop the service",
        "Please cancel my subscription at the end of the month.|I do not need the service any more.|Delete my account, I am moving to another provider.|How do I stop the automatic renewal?|We have decided not to continue.|Close my membership, please.|I want out of the contract.|Do not renew my plan next year.",
    ),
    _topic(
        "human resources|people team|HR|staff matters",
        "leave, payroll, contracts and colleagues|questions of employees about their job|holidays, salaries and working hours",
        "How many vacation days do I have left?|My payslip shows the wrong number of hours.|I would like to apply for parental leave.|When do I get the signed contract?|My manager has not approved my time off.|Can I work from home on Fridays?|I need a letter that confirms my employment.|Who do I tell that I am ill today?",
    ),
    _topic(
        "security|abuse and fraud|trust and safety|incident response",
        "suspicious activity, phishing, leaks and stolen data|someone may be misusing the system or an identity|possible attacks and scams",
        "I received a mail that pretends to come from you and asks for my PIN.|Someone signed in to my account from another country.|There is a purchase on my statement that I never made.|I think a file with client names was shared publicly.|A stranger is using my photos in a fake profile.|My laptop was stolen and work data is on it.|We found a virus on the reception computer.|A caller claimed to be your employee and wanted remote access.",
    ),
    _topic(
        "facilities|building services|office maintenance|repairs",
        "rooms, heating, lights, lifts and furniture|problems with the building or its equipment|repairs in the office",
        "The heating on the third floor is off again.|A light in the corridor flickers.|The lift is stuck between two floors.|There is water dripping from the ceiling.|My chair is broken.|The meeting room has no working projector.|The front door does not lock.|The kitchen sink is blocked.",
    ),
    _topic(
        "legal|privacy and compliance|contracts|data protection",
        "contracts, consent, data protection and legal notices|questions a lawyer should answer|personal data requests and terms of service",
        "Please send me all the data you hold about me.|Which law applies to clause seven of the agreement?|We need a signed processing agreement.|You are using our logo without permission.|My lawyer will contact you about this matter.|I withdraw my consent to marketing.|Is it allowed to store these records abroad?|We received a notice about a trademark.",
    ),
    _topic(
        "feedback|product ideas|feature requests|suggestions",
        "ideas and wishes for how the product could be better|suggestions, nothing is broken|things people would like to have in future",
        "It would be great to have a dark mode.|Please add a calendar view.|I wish I could sort the list by date.|A keyboard shortcut for archive would help a lot.|Could you support more languages?|My suggestion: let us pin messages.|An offline mode would be wonderful.|Have you thought about a family plan?",
    ),
    _topic(
        "travel|bookings|trips|travel desk",
        "flights, hotels, trains and changes to trips|journeys that are planned or have to be changed|tickets and reservations for a trip",
        "I need a flight to Rome on the 4th.|Please move my hotel booking by one night.|The train was cancelled, how do I get home?|Can I take a dog on the ferry?|We would like a room with a view for two nights.|My connecting flight leaves before I land.|Is breakfast part of the reservation?|Book a taxi to the airport for six.",
    ),
    _topic(
        "events|workshops|conferences|event team",
        "registrations, programmes, speakers and venues|anything about a meeting or event that takes place|tickets to talks and workshops",
        "Is there still a place in the pottery workshop?|Who is speaking on Friday morning?|I registered but got no confirmation for the conference.|Where is the venue and is there parking?|May I bring a guest to the gala?|The programme lists two talks at the same time.|How do I become a volunteer at the fair?|Will the lecture be recorded?",
    ),
    _topic(
        "medical|health line|clinic|patient care",
        "symptoms, appointments, prescriptions and results|people who ask about their health|contact with a doctor or nurse",
        "I have had a fever since Sunday.|Can I take the tablets with food?|I need a new prescription for my asthma spray.|When will the blood test be back?|My knee hurts when I climb stairs.|I would like to see the doctor this week.|The rash has spread to my arm.|Is the vaccine available for children?",
    ),
    _topic(
        "food orders|kitchen|restaurant|catering",
        "meals, menus, allergies and table reservations|what guests eat and when|orders and wishes for food",
        "A table for four at eight, please.|The soup was cold and the bread was stale.|Is there a menu without nuts?|We need sandwiches for thirty people on Tuesday.|My pizza came without cheese.|Do you have vegan desserts?|Please leave the onions out of my salad.|What time does the kitchen close?",
    ),
)
_URGENT = (
    "This is urgent.",
    "I need this today.",
    "Please answer within the hour, we are losing customers.",
    "It cannot wait until tomorrow.",
    "Everything has stopped because of this.",
    "As soon as possible, please!",
)
_CALM = (
    "No hurry.",
    "Whenever you have time.",
    "It can wait until next week.",
    "Just for information.",
    "There is no rush at all.",
)
_ANGRY = (
    "I am very disappointed.",
    "This is unacceptable.",
    "Worst service I have ever had.",
    "I am tired of explaining this again and again.",
    "How can you treat people like this?",
    "Honestly, this is a joke.",
)
_HAPPY = (
    "Thank you for the great work so far.",
    "I love your service.",
    "Your team has been wonderful.",
    "Everything else is perfect.",
    "You have always been so helpful.",
)
_ASKS = {
    "a refund": ("I want my money back.", "Please refund me.", "I expect a full refund."),
    "a call": ("Please call me back.", "Can someone phone me this afternoon?", "I would rather talk on the phone."),
    "a manager": (
        "Let me speak to a manager.",
        "I want your supervisor to look at this.",
        "Please escalate this to your boss.",
    ),
    "a written reply": ("Please answer by email only.", "I would like a written answer.", "Reply in writing, please."),
}
_METADATA = (
    "account age: {n} months; open tickets: {d}",
    "plan: {p} | last invoice: ${n} | region: {r}",
    "Sent from my phone",
    "tags: billing, delivery, login",
    "customer since 20{n}; last order shipped {d} days ago; refunds: 0",
    "previous topic: {t}",
    "agent note: asked about {t} last month, solved",
    "signature: {p} plan member, security code verified",
)
_ROUTE = (
    "Which team should handle this?",
    "Route this message.",
    "Where does it belong?",
    "Pick the right queue.",
    "What is the message about?",
    "Choose the department for this ticket.",
    None,
)
_LONG = (
    "Let me explain from the start.",
    "I have been with you for a while and never had to write before.",
    "My neighbour told me to contact you.",
    "I tried the help pages first.",
    "It was a sunny day and I had just come home.",
    "My colleague Sam is copied on this message.",
    "I am writing from the train, so excuse the typos.",
    "We spoke briefly in spring.",
    "I hope you are well.",
    "The weather here is dreadful.",
    "I also sent this through the form, so you may have it twice.",
    "For what it is worth, my sister has the same experience.",
)


def _noul(text: str, truth: bool, true: str | None = None, false: str | None = None) -> Labelled:
    return Labelled(Noul("q", text, true, false), one_hot(2, 0 if truth else 1))


def _route(rng: random.Random, topic: Topic) -> Labelled:
    count = rng.choice([2, 3, 4, 4, 5, 6, 8, 12, len(TOPICS)])
    others = rng.sample([t for t in TOPICS if t is not topic], min(count, len(TOPICS)) - 1)
    known = [topic, *others]
    described = rng.random() < 0.65
    hidden = described and rng.random() < 0.3
    names = random_names(rng, len(known)) if hidden else [rng.choice(t.names) for t in known]
    right = 0
    if rng.random() < 0.12:
        none = rng.choice(NONE_NAMES)
        if rng.random() < 0.5 and len(known) > 2:
            known, names, right = known[1:], [*names[1:], none], len(known) - 1
        else:
            names = [*names, none]
    texts: list[str | None] = [rng.choice(t.descriptions) if described else None for t in known]
    if described and rng.random() < 0.25:
        texts = [f"for example: {rng.choice(t.messages)}" for t in known]
    texts += [None] * (len(names) - len(texts))
    order = list(range(len(names)))
    rng.shuffle(order)
    options = tuple(Option(names[i], texts[i]) for i in order)
    return Labelled(Choice("q", rng.choice(_ROUTE), options), one_hot(len(order), order.index(right)))


def ticket(rng: random.Random) -> Example:
    """A message and one to five questions about where it goes, how urgent and how happy it is, and what it asks."""
    topic = rng.choice(TOPICS)
    parts = [rng.choice(topic.messages)]
    pressure = rng.choice(("urgent", "calm", "none", "none"))
    mood = rng.choice(("angry", "happy", "none", "none"))
    if pressure != "none":
        parts.append(rng.choice(_URGENT if pressure == "urgent" else _CALM))
    if mood != "none":
        parts.append(rng.choice(_ANGRY if mood == "angry" else _HAPPY))
    asked = rng.choice([*_ASKS, "", ""])
    if asked:
        parts.append(rng.choice(_ASKS[asked]))
    parts += rng.sample(_LONG, rng.choice([0, 0, 0, 1, 2, 4]))
    rng.shuffle(parts)
    message = " ".join(parts)
    state: Text = message
    if rng.random() < 0.4:
        line = rng.choice(_METADATA).format(
            n=rng.randrange(10, 40),
            d=rng.randrange(0, 9),
            p=rng.choice(["free", "pro"]),
            r=rng.choice(["EU", "US"]),
            t=rng.choice(rng.choice(TOPICS).names),
        )
        state = f"{message}\n{line}" if rng.random() < 0.7 else f"{line}\n{message}"
    elif rng.random() < 0.2:
        state = {
            "subject": rng.choice(("Hello", "Question", "Help", "(no subject)")),
            "body": message,
            "channel": rng.choice(("web", "email")),
        }
    level = {"calm": 0, "none": 1, "urgent": 2}[pressure]
    feeling = {"angry": 0, "none": 1, "happy": 2}[mood]
    other = rng.choice([t for t in TOPICS if t is not topic])
    about = rng.choice((topic, other))
    wanted = rng.choice(list(_ASKS))
    urgency = rng.choice(
        (
            ("can wait", "normal", "urgent"),
            ("low", "medium", "high"),
            ("no time pressure", "no deadline is mentioned", "needs an answer now"),
        )
    )
    feelings = rng.choice(
        (("angry or disappointed", "neutral", "happy or thankful"), ("negative", "neutral", "positive"))
    )
    items = [
        _route(rng, topic),
        _route(rng, topic),
        _noul(
            rng.choice(("Is this urgent?", "The customer is in a hurry.", "Does it need an answer right away?")),
            pressure == "urgent",
        ),
        _noul(
            "Should this be answered first?",
            pressure == "urgent",
            "the writer says it is urgent",
            "the writer leaves time or says nothing about it",
        ),
        _noul(rng.choice(("Is the writer angry or unhappy?", "The tone is hostile or disappointed.")), mood == "angry"),
        _noul(
            rng.choice(("Does the writer praise the service?", "The writer thanks or compliments someone.")),
            mood == "happy",
        ),
        _noul(rng.choice(("Does the writer ask for {}?", "The writer wants {}.")).format(wanted), wanted == asked),
        _noul(
            rng.choice(("Is this about {}?", "The message concerns {}.")).format(rng.choice(about.descriptions)),
            about is topic,
        ),
        _noul(
            f"Belongs to {rng.choice(about.names)}?", about is topic, rng.choice(about.descriptions), "anything else"
        ),
        Labelled(
            Score("q", rng.choice(("How urgent is it?", "Urgency", "Rate the time pressure.")), urgency),
            one_hot(3, level),
        ),
        Labelled(
            Score("q", rng.choice(("What is the mood?", "How does the writer feel?")), feelings), one_hot(3, feeling)
        ),
    ]
    return Example(state, tuple(rng.sample(items, rng.choice([1, 2, 3, 5]))))
