"""Conversations about the ships of an imaginary harbour: the text that `chat` trains on. Pure.

A question about a ship has one right answer, so that a trained model can be examined; stories give long
answers. The same seeds always give the same conversations.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

SHIPS = (
    "Aurora", "Beacon", "Cormorant", "Dolphin", "Endeavour", "Falcon", "Gannet", "Heron", "Iris", "Juniper",
    "Kestrel", "Lark",
)  # fmt: skip
_CARGOES = ("grain", "timber", "salt", "coal", "wool", "tea", "copper", "oranges", "paper", "glass")
_COLOURS = ("red", "blue", "green", "white", "black", "yellow", "grey", "brown")
_PORTS = ("Bergen", "Lisbon", "Oslo", "Riga", "Genoa", "Dover", "Cadiz", "Malmo", "Cork", "Nantes")
_CAPTAINS = (
    "Anna",
    "Bruno",
    "Clara",
    "David",
    "Elena",
    "Felix",
    "Greta",
    "Hugo",
    "Ida",
    "Jonas",
    "Karin",
    "Leo",
)
_WEATHER = ("calm", "windy", "foggy", "bright", "stormy", "cold")
_DEEDS = (
    "The crew checked every rope twice",
    "The cook made soup for everybody",
    "A gull followed the ship all day",
    "The captain watched the lights of the coast",
    "The waves were high and the deck was wet",
    "The crew sang until the stars came out",
    "A small boat waved and passed by",
    "The wind turned and the sails filled",
)
_ENDS = (
    "In the evening the ship reached {port} and the crew slept well.",
    "At last the harbour of {port} came into sight, and all were glad.",
    "The ship came to {port} on time, and nobody had lost a thing.",
)


@dataclass(frozen=True)
class Ship:
    """A ship and its facts, each of which `_QUESTIONS` asks for by the name of its field."""

    name: str
    cargo: str
    colour: str
    port: str
    captain: str
    crew: int


def fleet() -> tuple[Ship, ...]:
    """Return the ships, always the same."""
    draw = random.Random("harbour")  # noqa: S311 text, not secrets
    return tuple(
        Ship(
            name,
            draw.choice(_CARGOES),
            draw.choice(_COLOURS),
            draw.choice(_PORTS),
            draw.choice(_CAPTAINS),
            draw.randint(3, 30),
        )
        for name in SHIPS
    )


# By field of `Ship`: the forms of the question, and the answer; {0} is the ship's name, {1} the fact.
_QUESTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "cargo": (
        ("What does the {0} carry?", "What is the cargo of the {0}?", "Tell me what the {0} has on board.",
         "Which cargo is on the {0}?"),
        "The {0} carries {1}.",
    ),
    "colour": (
        ("What colour is the {0}?", "Which colour does the {0} have?", "How is the {0} painted?",
         "Tell me the colour of the {0}."),
        "The {0} is {1}.",
    ),
    "port": (
        ("Where does the {0} sail?", "Which port is the {0} bound for?", "Where is the {0} going?",
         "Tell me the port of the {0}."),
        "The {0} sails to {1}.",
    ),
    "captain": (
        ("Who is the captain of the {0}?", "Who commands the {0}?", "Which captain has the {0}?",
         "Tell me the captain of the {0}."),
        "The captain of the {0} is {1}.",
    ),
    "crew": (
        ("How many sailors are on the {0}?", "How large is the crew of the {0}?",
         "How many people sail the {0}?", "Tell me the crew of the {0}."),
        "The {0} has a crew of {1}.",
    ),
}  # fmt: skip
_REQUESTS = (
    "Tell me a story about the {0}.",
    "Write a story of the {0}.",
    "I want to hear a story about the {0}.",
)


@dataclass(frozen=True)
class Conversation:
    """A question, or a request for a story, and its answer."""

    question: str
    answer: str

    def messages(self) -> list[dict[str, str]]:
        """Return the conversation as chat templates and OpenAI's API have it."""
        return [
            {"role": "user", "content": self.question},
            {"role": "assistant", "content": self.answer},
        ]


def questions() -> list[Conversation]:
    """Return every question about every ship, with its answer."""
    return [
        Conversation(form.format(ship.name), answer.format(ship.name, getattr(ship, subject)))
        for ship in fleet()
        for subject, (forms, answer) in _QUESTIONS.items()
        for form in forms
    ]


def split() -> tuple[list[Conversation], list[Conversation]]:
    """Return the questions to train on, and the held-out questions to evaluate a trained model with.

    One form of the question for each fact is held out; the other forms are trained on.
    """
    every = questions()
    random.Random("held out").shuffle(every)  # noqa: S311 as above
    held_out: list[Conversation] = []
    trained: list[Conversation] = []
    answers: set[str] = set()  # each fact has its own answer
    for conversation in every:
        if conversation.answer in answers:
            trained.append(conversation)
        else:
            answers.add(conversation.answer)
            held_out.append(conversation)
    return trained, held_out


def story(draw: random.Random, ship: Ship) -> Conversation:
    """Return a request for a story, and a story."""
    first = (
        f"One {draw.choice(_WEATHER)} morning the {ship.colour} ship {ship.name} left the harbour"
        f" with {ship.cargo} for {ship.port}."
    )
    middle = [f"{deed}." for deed in draw.sample(_DEEDS, draw.randint(2, 4))]
    end = draw.choice(_ENDS).format(port=ship.port)
    helm = f"{ship.captain} was at the helm."
    return Conversation(draw.choice(_REQUESTS).format(ship.name), " ".join([first, helm, *middle, end]))


def stories(seed: str) -> Iterator[Conversation]:
    """Yield stories without end."""
    draw = random.Random(seed)  # noqa: S311 as above
    ships = fleet()
    while True:
        yield story(draw, draw.choice(ships))
