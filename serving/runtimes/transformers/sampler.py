"""Chooses the next token of each row from its logits."""

import functools
from collections.abc import Sequence

import torch

from serving.runtimes.transformers.generation import Sampling, TokenChoice

LEAST_TEMPERATURE = 1e-5
"""A lower temperature counts as 0, as vLLM's does: logits that are divided by it may overflow."""
_NO_TOKEN = -1
"""Stands for a row without a token: its largest logit is not finite."""


class Sampler:
    """The sampling parameters of one request, and its random number generator."""

    def __init__(self, sampling: Sampling, device: torch.device) -> None:
        self.sampling = sampling
        self._device = device

    @functools.cached_property
    def _generator(self) -> torch.Generator:
        """The generator, made at first use, in the engine's thread, which handles failures of the GPU."""
        generator = torch.Generator(self._device)
        if self.sampling.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.sampling.seed)
        return generator

    def noise(self, size: int) -> torch.Tensor:
        """Return exponential noise [size]: the token with the largest probability / noise is a sample."""
        drawn = torch.empty(size, device=self._device)
        return drawn.exponential_(generator=self._generator)


def choose(logits: torch.Tensor, samplers: Sequence[Sampler]) -> list[TokenChoice | None]:
    """Return the next token of each row, one for each sequence; None where the largest logit is not finite.

    A sample of probabilities p is argmax(p / e) for independent exponential e (the exponential races of
    https://en.wikipedia.org/wiki/Exponential_distribution#Distribution_of_the_minimum). Log probabilities are
    those of the model, before temperature and `top_p`, as OpenAI's.

    Args:
        logits: [rows, vocabulary].
        samplers: the sampler of each row.
    """
    tokens = logits.argmax(dim=-1)  # argmax takes a NaN for the largest logit
    is_finite = logits.gather(-1, tokens[:, None])[:, 0].isfinite()
    drawn = [row for row, sampler in enumerate(samplers) if sampler.sampling.temperature >= LEAST_TEMPERATURE]
    if drawn:
        drawing = [samplers[row] for row in drawn]
        temperatures = torch.tensor([one.sampling.temperature for one in drawing], device=logits.device)
        probabilities = (logits[drawn] / temperatures[:, None]).softmax(dim=-1)
        limits = [one.sampling.top_p for one in drawing]
        if min(limits) < 1:
            probabilities = _most_probable(probabilities, torch.tensor(limits, device=logits.device))
        noise = torch.stack([one.noise(logits.shape[-1]) for one in drawing])
        tokens[drawn] = (probabilities / noise).argmax(dim=-1)
    # In one tensor, as each transfer waits for a GPU.
    chosen_tokens = tokens.where(is_finite, _NO_TOKEN).tolist()
    return [
        _choice(logits[row], token, samplers[row].sampling.alternatives) if token != _NO_TOKEN else None
        for row, token in enumerate(chosen_tokens)
    ]


def _most_probable(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return the probabilities of the most probable tokens that together reach `top_p`; 0 for the others.

    Args:
        probabilities: [rows, vocabulary].
        top_p: [rows].
    """
    ordered, order = probabilities.sort(dim=-1, descending=True)
    more_probable = ordered.cumsum(dim=-1) - ordered  # the sum of the probabilities of more probable tokens
    kept = ordered.masked_fill(more_probable >= top_p[:, None], 0.0)
    return torch.zeros_like(probabilities).scatter(-1, order, kept)


def _choice(logits: torch.Tensor, token: int, alternatives: int | None) -> TokenChoice:
    """Return a row's token with its log probabilities, unless the request asks for none (None).

    Args:
        logits: [vocabulary], of the row.
        token: the row's next token.
        alternatives: `Sampling.alternatives`.
    """
    if alternatives is None:
        return TokenChoice(token, 0.0)
    logprobs = logits.log_softmax(dim=-1)
    top = logprobs.topk(min(alternatives, logprobs.shape[-1])) if alternatives else None
    pairs = tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)) if top is not None else ()
    return TokenChoice(token, float(logprobs[token]), pairs)
