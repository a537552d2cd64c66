"""Chooses the next token of each row from its logits."""

import functools
from collections.abc import Sequence

import torch

from serving.runtimes.transformers.generation import Sampling, TokenChoice

LEAST_TEMPERATURE = 1e-5
"""A lower temperature counts as 0, as vLLM's does: logits that are divided by it may overflow."""
_NONE = -1
"""In place of a token."""


class Sampler:
    """The sampling of one request, with its random numbers."""

    def __init__(self, sampling: Sampling, device: torch.device) -> None:
        self.sampling = sampling
        self._device = device

    @functools.cached_property
    def _generator(self) -> torch.Generator:
        """The generator, made in the engine's thread: a failure of the GPU is one of the model there."""
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
    """Return the next token of each row; None where the largest logit is not finite.

    A sample of probabilities p is argmax(p / e) for independent exponential e (the exponential races of
    https://en.wikipedia.org/wiki/Exponential_distribution#Distribution_of_the_minimum). Log probabilities are
    those of the model, before temperature and `top_p`, as OpenAI's.

    Args:
        logits: [rows, vocabulary].
        samplers: of each row.
    """
    tokens = logits.argmax(dim=-1)  # that of a NaN, if there is one
    is_finite = logits.gather(-1, tokens[:, None])[:, 0].isfinite()
    drawn = [row for row, sampler in enumerate(samplers) if sampler.sampling.temperature >= LEAST_TEMPERATURE]
    if drawn:
        chosen = [samplers[row] for row in drawn]
        temperatures = torch.tensor([one.sampling.temperature for one in chosen], device=logits.device)
        probabilities = (logits[drawn] / temperatures[:, None]).softmax(dim=-1)
        limits = [one.sampling.top_p for one in chosen]
        if min(limits) < 1:
            probabilities = _most_probable(probabilities, torch.tensor(limits, device=logits.device))
        noise = torch.stack([one.noise(logits.shape[-1]) for one in chosen])
        tokens[drawn] = (probabilities / noise).argmax(dim=-1)
    # In one tensor, as each transfer waits for a GPU.
    chosen_tokens = tokens.where(is_finite, _NONE).tolist()
    return [
        _choice(logits[row], token, samplers[row].sampling.alternatives) if token != _NONE else None
        for row, token in enumerate(chosen_tokens)
    ]


def _most_probable(probabilities: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep the most probable tokens that together have the probability `top_p`; set the others to 0."""
    ordered, order = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(
        -1, order, ordered.masked_fill(before >= top_p[:, None], 0.0)
    )


def _choice(logits: torch.Tensor, token: int, alternatives: int | None) -> TokenChoice:
    if alternatives is None:
        return TokenChoice(token, 0.0)
    logprobs = logits.log_softmax(dim=-1)
    top = logprobs.topk(min(alternatives, logprobs.shape[-1])) if alternatives else None
    pairs = tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True)) if top is not None else ()
    return TokenChoice(token, float(logprobs[token]), pairs)
