"""Continuous batching: sequences join and leave the batch between two tokens.

One thread runs the model. In each step it reads a bounded number of prompt tokens (chunked prefill) and then
generates one token of every sequence (decode), so that a long prompt delays the others by a bounded time.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from serving import clock, errors
from serving.runtimes.transformers.generation import (
    Deliver,
    FinishReason,
    GenerationRequest,
    Part,
    TokenChoice,
)
from serving.runtimes.transformers.metrics import EngineMetrics
from serving.runtimes.transformers.prefix_cache import PrefixCache
from serving.runtimes.transformers.sampler import Sampler, choose
from serving.runtimes.transformers.stop_texts import StopTexts

_log = logging.getLogger(__name__)
MOST_FAILURES = 3
"""Consecutive failed steps from which the model counts as dead. A request that the model cannot answer fails
one step. An error of a GPU's context fails every step until the process is restarted."""
COPIES_PER_TOKEN = 32
"""Tokens of a cached prefix that are copied in the time in which one token is read: 1 billion parameters and
100 kB of keys and values a token on a large GPU; on a CPU some hundreds."""
LONGEST_CALL_SECONDS = 300.0
"""Duration of a call from which the model counts as hung. The 512 prompt tokens of a step take 7 TFLOP
with 7 billion parameters: 140 s on two slow cores (50 GFLOP/s). After five minutes the gateway has cut all
streams (`gateway.stream_idle_seconds`), so nobody waits for a longer call."""


class Decoder(Protocol):
    """The model, as `decoder.Decoder` runs it."""

    def prefill(self, prompts: Sequence[Sequence[int]], first_row: int) -> torch.Tensor:
        """Read whole prompts into the rows from `first_row` on; return the logits [prompts, vocabulary]."""

    def prefill_chunk(self, tokens: Sequence[int], first_position: int) -> torch.Tensor:
        """Read a chunk of a long prompt, into a row outside the batch; return the logits [vocabulary] of its
        last token.
        """

    def begin_prefilled(self, row: int, length: int) -> None:
        """Copy the first `length` tokens of a row to the row outside the batch, to begin a prompt."""

    def add_prefilled(self, row: int, length: int) -> None:
        """Copy the long prompt of `length` tokens, once it has been read, to a row of the batch."""

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a sequence of `length` tokens to another row."""

    def clear(self, row: int, length: int) -> None:
        """Set the first `length` tokens of a row to zero: a NaN would spread to the row's next sequence."""

    def step(self, tokens: Sequence[int], lengths: Sequence[int]) -> torch.Tensor:
        """Return the logits [rows, vocabulary] after each row's next token.

        Args:
            tokens: the next token of each row.
            lengths: the number of tokens of each row before its next token.
        """


class TextDecoder(Protocol):
    """Turns the tokens of one generation into text."""

    def add(self, token: int) -> str:
        """Return the text that is complete with this token."""


class Vocabulary(Protocol):
    """The tokenizer, as far as an engine needs it."""

    ends: frozenset[int]
    """Tokens that end a generation."""

    def text_decoder(self) -> TextDecoder:
        """Return a decoder for one generation."""


@dataclass(frozen=True)
class EngineLimits:
    """The bounds of an engine."""

    sequences: int
    """Sequences that are generated together."""
    context: int
    """Tokens of a prompt and its answer together, at most."""
    waiting: int
    """Requests that wait for a place in the batch; further ones are refused."""
    prompt_tokens_per_step: int
    """Prompt tokens that are read between two tokens of the other sequences."""
    tokens_per_call: int
    """Prompt tokens that the model reads in the time of its shortest call. The rest of a prompt with a cached
    prefix counts at least as many, as the steps would otherwise have any number of calls."""


@dataclass(eq=False)
class Generation:
    """A request in the engine."""

    request: GenerationRequest
    deliver: Deliver
    sampler: Sampler
    text: TextDecoder
    stops: StopTexts
    submitted: float
    """Seconds of the monotonic clock."""
    cancelled: bool = False
    read: int = 0
    """Tokens of the prompt that have been read."""
    has_prefix: bool = False
    """Whether the prompt began with a cached prefix."""
    tokens: list[int] = field(default_factory=list)
    """The generated tokens."""
    characters: int = 0
    """Length of the text of the generated tokens."""
    last: TokenChoice = field(default_factory=lambda: TokenChoice(0, 0.0))
    """The last generated token, which the next step reads."""
    last_at: float = 0.0
    """When `last` was generated, in seconds of the monotonic clock; 0 before the first token."""

    @property
    def length(self) -> int:
        """Tokens in the cache: the last generated one is not read yet."""
        return self.read + max(0, len(self.tokens) - 1)

    @property
    def cached(self) -> array[int]:
        """The tokens in the cache."""
        return array("i", (*self.request.prompt, *self.tokens))[: self.length]


class GenerationEngine:
    """Generates texts for requests from any thread."""

    def __init__(
        self,
        decoder: Decoder,
        vocabulary: Vocabulary,
        limits: EngineLimits,
        metrics: EngineMetrics,
        device: torch.device,
        *,
        prefixes: PrefixCache,
    ) -> None:
        self._decoder, self._vocabulary, self._limits, self._device = decoder, vocabulary, limits, device
        self._prefixes = prefixes
        self._metrics = metrics
        self._condition = threading.Condition()
        self._waiting: deque[Generation] = deque()
        self._reading: Generation | None = None
        """The generation whose long prompt is read in chunks."""
        self._copied = 0
        """Tokens of ended generations that were copied to free rows since the last step began."""
        self._rows: list[Generation] = []
        """The batch: the generations by their row of the cache."""
        self._stopped = False
        """Whether `stop` was called."""
        self._has_ended = False
        """Whether `run` has returned or failed."""
        self._failures = 0
        """Failed steps since the last one that did not fail."""
        self._advanced_at: float | None = None
        """Seconds of the monotonic clock when work began, or the model last returned; None without work."""

    def submit(self, request: GenerationRequest, deliver: Deliver) -> Generation:
        """Enqueue a request; `deliver` gets its parts until one has `finish`.

        The engine's thread calls `deliver`, which must neither wait nor raise. The prompt and `max_tokens`
        are together within the context. After `stop` the request gets no answer.

        Raises:
            errors.Temporary: too many requests wait.
        """
        generation = Generation(
            request,
            deliver,
            Sampler(request.sampling, self._device),
            self._vocabulary.text_decoder(),
            StopTexts(request.stop),
            clock.monotonic(),
        )
        with self._condition:
            self.check_room()
            self._waiting.append(generation)
            self._condition.notify()
        return generation

    def check_room(self) -> None:
        """Refuse one more request where too many wait.

        A server also calls it before it converts a prompt to tokens, which is costly.

        Raises:
            errors.Temporary: too many requests wait.
        """
        if len(self._waiting) >= self._limits.waiting:
            raise errors.Temporary(
                "EngineFull",
                f"the engine is full: {len(self._rows)} sequences run and {len(self._waiting)} wait",
            )

    def cancel(self, generation: Generation) -> None:
        """End a generation whose client is gone; it leaves the batch before the next token."""
        with self._condition:
            generation.cancelled = True
            if generation in self._waiting:
                self._waiting.remove(generation)
                self._metrics.finished("cancelled", generation.submitted, clock.monotonic())

    def stop(self) -> None:
        """Let `run` return; generations that have not ended end with an error."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def run(self) -> None:
        """Generate until `stop`."""
        try:
            while self._has_work():
                self._advanced_at = clock.monotonic()
                try:
                    self._step()
                except Exception:  # noqa: BLE001 whatever the model raised, other requests may be served
                    _log.exception("the model failed, and all its sequences end")
                    self._failures += 1
                    self._fail()
                else:
                    self._failures = 0
            self._fail()
            while self._waiting:
                self._waiting.popleft().deliver(Part("", finish="error"))
        finally:
            self._has_ended = True

    def obstacle(self, now: float) -> str:
        """Return why the engine answers nothing more; empty while it works. From any thread.

        Args:
            now: seconds of the monotonic clock.
        """
        advanced_at = self._advanced_at
        if self._has_ended:
            return "the engine has ended; see its log"
        if self._failures >= MOST_FAILURES:
            return f"the model failed {self._failures} times in a row; see its log"
        if advanced_at is not None and now - advanced_at > LONGEST_CALL_SECONDS:
            return f"the model has not returned for {now - advanced_at:.0f} s"
        return ""

    def _has_work(self) -> bool:
        """Wait for work; return whether there is some, and no `stop`."""
        with self._condition:
            while not (self._stopped or self._waiting or self._reading or self._rows):
                self._advanced_at = None
                self._condition.wait()
            return not self._stopped

    def _step(self) -> None:
        """Read prompt tokens, then generate the next token of every sequence of the batch."""
        self._remove({each: "cancelled" for each in self._rows if each.cancelled})
        self._prefill()
        if not self._rows:
            return
        logits = self._decoder.step(
            [generation.last.token for generation in self._rows],
            [generation.length for generation in self._rows],
        )
        choices = choose(logits, [generation.sampler for generation in self._rows])
        self._advance(list(zip(self._rows, choices, strict=True)))

    def _prefill(self) -> None:
        """Read as many prompt tokens as a step may: short prompts together, a long one in chunks."""
        budget = most = self._limits.prompt_tokens_per_step - self._copied // COPIES_PER_TOKEN
        self._copied = 0
        while budget > 0:
            if (reading := self._reading) is not None:
                read = self._prefill_chunk(reading, budget)
                budget -= max(read, self._limits.tokens_per_call) if reading.has_prefix else read
                continue
            short = self._next_short(budget)
            if not short:
                reading = self._reading = self._next_alone(most)
                if reading is None:
                    return
                budget -= self._copy_prefix(reading)
                continue
            prompts = [generation.request.prompt for generation in short]
            budget -= len(short) * max(map(len, prompts))  # with the padding of shorter prompts
            first = len(self._rows)
            self._rows += short  # now, so that they end if the model fails
            self._prefixes.take(range(first, len(self._rows)))
            logits = self._decoder.prefill(prompts, first)
            for generation in short:
                generation.read = len(generation.request.prompt)
                self._metrics.prompt_tokens(generation.read)
                self._metrics.prefix(generation.read, 0)
            choices = choose(logits, [generation.sampler for generation in short])
            self._advance(list(zip(short, choices, strict=True)))

    def _prefill_chunk(self, reading: Generation, budget: int) -> int:
        """Read the next chunk of a long prompt; return its number of tokens."""
        if reading.cancelled:
            self._reading = None
            self._finish(reading, "cancelled")
            return 0
        chunk = reading.request.prompt[reading.read : reading.read + budget]
        logits = self._decoder.prefill_chunk(chunk, reading.read)
        self._advanced_at = clock.monotonic()
        reading.read += len(chunk)
        self._metrics.prompt_tokens(len(chunk))
        if reading.read == len(reading.request.prompt):
            self._prefixes.take([len(self._rows)])
            self._decoder.add_prefilled(len(self._rows), reading.read)
            self._reading = None
            self._rows.append(reading)
            self._advance([(reading, choose(logits[None], [reading.sampler])[0])])
        return len(chunk)

    def _next_short(self, budget: int) -> list[Generation]:
        """Return the first waiting requests whose padded prompts are together within the budget, up to one
        with a cached prefix.
        """
        taken: list[Generation] = []
        longest = 0
        with self._condition:
            while self._waiting and len(self._rows) + len(taken) < self._limits.sequences:
                prompt = self._waiting[0].request.prompt
                longest = max(longest, len(prompt))
                if (len(taken) + 1) * longest > budget or self._prefixes.longest(prompt):
                    break
                taken.append(self._waiting.popleft())
        return taken

    def _next_alone(self, most: int) -> Generation | None:
        """Return the next waiting request, if the batch has a place for it, and if a prefix of its prompt is
        cached or this step could not read it whole, with `most` tokens.
        """
        with self._condition:
            if not self._waiting or len(self._rows) >= self._limits.sequences:
                return None
            prompt = self._waiting[0].request.prompt
            is_long = len(prompt) > most
            return self._waiting.popleft() if is_long or self._prefixes.longest(prompt) else None

    def _copy_prefix(self, reading: Generation) -> int:
        """Begin a prompt with its cached prefix, if there is one; return the number of prompt tokens that the
        engine could read in the time of the copies.
        """
        prompt = reading.request.prompt
        prefix = self._prefixes.longest(prompt)
        if prefix is not None:
            self._decoder.begin_prefilled(prefix.row, prefix.length)
            reading.read, reading.has_prefix = prefix.length, True
            self._metrics.prompt_tokens(prefix.length)
        self._metrics.prefix(len(prompt), reading.read)
        return reading.read // COPIES_PER_TOKEN

    def _advance(self, chosen: Sequence[tuple[Generation, TokenChoice | None]]) -> None:
        """Deliver the new tokens; sequences that end with them leave the batch."""
        now = self._advanced_at = clock.monotonic()
        ended: dict[Generation, FinishReason] = {}
        for generation, choice in chosen:
            if choice is None:
                _log.error("the model's logits are not finite, and the answer ends")
                # Before any row moves. The last generated token, if any, has been read.
                self._decoder.clear(self._rows.index(generation), generation.length + 1)
                ended[generation] = "error"
                continue
            generation.tokens.append(choice.token)
            generation.last = choice
            self._metrics.generated(generation.submitted, generation.last_at, now)
            generation.last_at = now
            try:
                finish = self._deliver(generation, choice)
            except Exception:  # noqa: BLE001 a tokenizer that cannot decode one answer ends that one
                _log.exception("an answer cannot be decoded, and ends")
                finish = "error"
            if finish:
                ended[generation] = finish
        self._remove(ended)

    def _deliver(self, generation: Generation, choice: TokenChoice) -> FinishReason | None:
        """Deliver a new token's text; return why the generation ends with the token, or None."""
        request = generation.request
        decoded, text, is_stopped = "", "", False
        is_end = choice.token in self._vocabulary.ends and not request.ignore_end
        if not is_end:
            decoded = generation.text.add(choice.token)
            # An end that may begin a stop text is held back, and returned with a later token or by `rest`.
            text, is_stopped = generation.stops.add(decoded)
        finish: FinishReason | None = "stop" if is_end or is_stopped else None
        if finish is None and len(generation.tokens) >= request.max_tokens:
            finish = "length"
        if finish and not is_stopped:
            text += generation.stops.rest()
        is_reported = request.sampling.alternatives is not None and not is_end
        choices = (replace(choice, offset=generation.characters),) if is_reported else ()
        generation.characters += len(decoded)
        generation.deliver(Part(text, choices, len(generation.tokens), finish))
        return finish

    def _remove(self, ended: Mapping[Generation, FinishReason]) -> None:
        """Remove generations from the batch; the last rows take their places."""
        moves: list[tuple[int, int, int]] = []
        first_free = len(self._rows)
        rows = {self._rows.index(generation): generation for generation in ended}
        for row in sorted(rows, reverse=True):
            generation, last = rows[row], self._rows.pop()
            self._finish(generation, ended[generation])
            free = None if ended[generation] == "error" else self._prefixes.add(generation.cached, first_free)
            if free is not None:
                moves.append((row, free, generation.length))
                self._copied += generation.length
            if generation is not last:
                self._rows[row] = last
                moves.append((len(self._rows), row, last.length))
        # Once all have left: if the model fails, the rest of the batch ends, and no generation twice.
        for source, target, length in moves:
            self._decoder.move(source, target, length)

    def _finish(self, generation: Generation, finish: FinishReason) -> None:
        """Count the end of a generation; deliver its last part, unless `_deliver` did (`stop`, `length`)."""
        self._metrics.finished(finish, generation.submitted, clock.monotonic())
        if finish in ("cancelled", "error"):
            generation.deliver(Part("", tokens=len(generation.tokens), finish=finish))

    def _fail(self) -> None:
        """End all generations but the waiting ones with an error."""
        reading, self._reading = self._reading, None
        if reading is not None:
            self._finish(reading, "error")
        self._remove(dict.fromkeys(self._rows, "error"))
        self._prefixes.clear()

    def page(self) -> bytes:
        """Return the metrics page, with the load of this moment."""
        with self._condition:
            waiting = [len(generation.request.prompt) for generation in self._waiting]  # tokens
        reading = self._reading  # read once, as the engine's thread changes it
        running = [*self._rows, *([reading] if reading else [])]
        cached_tokens = sum(generation.length for generation in running)
        self._metrics.load(
            running=len(running),
            waiting=len(waiting),
            waiting_tokens=sum(waiting),
            cache=cached_tokens / (self._limits.sequences * self._limits.context),
        )
        return self._metrics.page()
