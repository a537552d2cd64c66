"""A request for generated text, and the parts of its answer. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True)
class Sampling:
    """How each token is chosen."""

    temperature: float = 1.0
    """0, or nearly 0, takes the most probable token."""
    top_p: float = 1.0
    """The most probable tokens that together have this probability take part."""
    seed: int | None = None
    """With a seed, equal requests get equal tokens, as far as arithmetic in other batches is equal."""
    alternatives: int | None = None
    """The number of most probable tokens whose log probabilities are reported; None for no report."""


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt and its limits."""

    prompt: Sequence[int]
    """Tokens; at least one."""
    max_tokens: int
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    """Texts that end the generation, and are not part of it."""
    ignore_end: bool = False
    """Whether the model's end-of-text tokens do not end the generation."""


@dataclass(frozen=True)
class TokenChoice:
    """A generated token with its log probability (natural logarithm; 0 where none is reported)."""

    token: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()
    """The most probable tokens with their log probabilities, the most probable first."""
    offset: int = 0
    """Characters of the answer before the token, where log probabilities are reported."""


@dataclass(frozen=True)
class Part:
    """A part of an answer: the text of one generated token or of several."""

    text: str
    choices: tuple[TokenChoice, ...] = ()
    """The tokens of the text, where the request asks for log probabilities."""
    tokens: int = 0
    """Number of tokens generated so far."""
    finish: FinishReason | None = None
    """Set in the last part."""


Deliver = Callable[[Part], None]
"""Called in the engine's thread; must not block."""
