"""Continuous batching, with a model whose next token is the number of tokens before it."""

import random
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from serving import clock, errors
from serving.runtimes.transformers.generation import GenerationRequest, Part, Sampling
from serving.runtimes.transformers.metrics import EngineMetrics
from serving.runtimes.transformers.prefix_cache import PrefixCache
from tests.rig import optional_modules

if TYPE_CHECKING:
    from serving.runtimes.transformers.engine import Generation

torch = optional_modules.torch()
optional_modules.transformers()
engine = optional_modules.lazy("serving.runtimes.transformers.engine")

VOCABULARY = 200
END = 50
GREEDY = Sampling(temperature=0)
LEAST_PREFIX = 64


class CountingDecoder:
    """Stores each row's tokens; the next token of a row is its length."""

    def __init__(self) -> None:
        self.prompt: list[int] = []
        self.rows: dict[int, list[int]] = {}
        self.parts: list[int] = []
        self.batches: list[int] = []
        self.calls: list[int] = []
        """Calls for prompts before each step."""
        self._prompt_calls = 0
        self.fails = False
        self.move_fails = False
        self.before_step = lambda: None
        self.without_numbers: set[int] = set()
        """Lengths of sequences after which the logits are NaN."""
        self.changes: list[tuple[str, int]] = []
        """Rows that were cleared, or that others were moved to."""

    def _logits(self, rows: Sequence[Sequence[int]]) -> "torch.Tensor":
        lengths = [len(row) for row in rows]
        logits = torch.nn.functional.one_hot(torch.tensor(lengths), VOCABULARY).float()
        logits[torch.tensor([length in self.without_numbers for length in lengths])] = float("nan")
        return logits

    def prefill(self, prompts: Sequence[Sequence[int]], first_row: int) -> "torch.Tensor":
        if self.fails:
            raise RuntimeError("the model fails")
        self._prompt_calls += 1
        self.parts.append(len(prompts) * max(map(len, prompts)))
        for row, prompt in enumerate(prompts, first_row):
            self.rows[row] = list(prompt)
        return self._logits(prompts)

    def prefill_chunk(self, tokens: Sequence[int], first_position: int) -> "torch.Tensor":
        self._prompt_calls += 1
        if first_position == 0:
            self.prompt = []
        assert first_position == len(self.prompt)
        self.prompt += tokens
        self.parts.append(len(tokens))
        return self._logits([self.prompt])[0]

    def begin_prefilled(self, row: int, length: int) -> None:
        assert len(self.rows[row]) >= length
        self.prompt = self.rows[row][:length]

    def add_prefilled(self, row: int, length: int) -> None:
        self.rows[row] = self.prompt[:length]

    def clear(self, row: int, length: int) -> None:
        assert length >= len(self.rows[row])
        self.changes.append(("clear", row))

    def move(self, source: int, target: int, length: int) -> None:
        if self.move_fails:
            raise RuntimeError("the model fails")
        self.changes.append(("move", target))
        assert len(self.rows[source]) == length
        self.rows[target] = self.rows[source][:]

    def step(self, tokens: Sequence[int], lengths: Sequence[int]) -> "torch.Tensor":
        self.before_step()
        if self.fails:
            raise RuntimeError("the model fails")
        self.batches.append(len(tokens))
        self.calls.append(self._prompt_calls)
        self._prompt_calls = 0
        for row, (token, length) in enumerate(zip(tokens, lengths, strict=True)):
            del self.rows[row][length:]
            assert len(self.rows[row]) == length
            self.rows[row].append(token)
        return self._logits([self.rows[row] for row in range(len(tokens))])


class SummingDecoder(CountingDecoder):
    """The next token of a row depends on each of its tokens and their order."""

    def _logits(self, rows: Sequence[Sequence[int]]) -> "torch.Tensor":
        sums = [sum(place * token for place, token in enumerate(row, 1)) % VOCABULARY for row in rows]
        return torch.nn.functional.one_hot(torch.tensor(sums), VOCABULARY).float()


class Letters:
    ends = frozenset({END})

    def text_decoder(self) -> "Letters":
        return self

    def add(self, token: int) -> str:
        return chr(token + 200)


class Pairs:
    """A decoder for which each second token completes two characters."""

    def add(self, token: int) -> str:
        return "" if token % 2 else "ab"


class Illegible:
    def add(self, token: int) -> str:
        raise ValueError("no text")


class Client:
    """Collects the parts of one answer."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.ended = threading.Event()

    def __call__(self, part: Part) -> None:
        self.parts.append(part)
        if part.finish:
            self.ended.set()

    def wait(self) -> "Client":
        assert self.ended.wait(10), "the answer does not end"
        return self

    @property
    def lengths(self) -> list[int]:
        return [ord(letter) - 200 for part in self.parts for letter in part.text]

    @property
    def finish(self) -> str | None:
        return self.parts[-1].finish


class Rig:
    def __init__(
        self,
        sequences: int = 4,
        waiting: int = 8,
        per_step: int = 100,
        *,
        per_call: int = 1,
        held_rows: int | None = None,
        decoder: type[CountingDecoder] = CountingDecoder,
    ) -> None:
        self.decoder = decoder()
        limits = engine.EngineLimits(sequences, 190, waiting, per_step, per_call)
        self.engine = engine.GenerationEngine(
            self.decoder,
            Letters(),
            limits,
            EngineMetrics("m"),
            torch.device("cpu"),
            prefixes=PrefixCache(sequences if held_rows is None else held_rows, LEAST_PREFIX),
        )
        self.thread = threading.Thread(target=self.engine.run, daemon=True)

    def submit(
        self, prompt: int | Sequence[int], tokens: int, **fields: object
    ) -> "tuple[Client, Generation]":
        client = Client()
        prompt = (1,) * prompt if isinstance(prompt, int) else prompt
        request = GenerationRequest(array("i", prompt), tokens, **{"sampling": GREEDY, **fields})  # type: ignore[arg-type]
        return client, self.engine.submit(request, client)

    def start(self) -> None:
        self.thread.start()

    def metric(self, name: str) -> float:
        lines = [line for line in self.engine.page().decode().splitlines() if line.startswith(name)]
        assert len(lines) == 1, lines
        return float(lines[0].split()[-1])


@pytest.fixture
def make() -> Iterator[object]:
    rigs: list[Rig] = []

    def begin(**fields: Any) -> Rig:
        rigs.append(Rig(**fields))
        return rigs[-1]

    yield begin
    for rig in rigs:
        rig.engine.stop()
        if rig.thread.ident:
            rig.thread.join(10)
            assert not rig.thread.is_alive()


def test_every_sequence_has_its_own_tokens_when_they_join_and_leave(make) -> None:
    rig = make(sequences=3)
    clients = [rig.submit(prompt, tokens)[0] for prompt, tokens in [(3, 5), (7, 2), (2, 9), (4, 1), (6, 6)]]
    rig.start()
    for client, (prompt, tokens) in zip(clients, [(3, 5), (7, 2), (2, 9), (4, 1), (6, 6)], strict=True):
        assert client.wait().lengths == list(range(prompt, prompt + tokens))
        assert client.finish == "length"
    assert max(rig.decoder.batches) == 3


def test_long_prompt_is_read_in_parts_while_others_continue(make) -> None:
    rig = make(per_step=10)
    first, _ = rig.submit(2, 40)
    second, _ = rig.submit(35, 3)
    rig.start()
    assert second.wait().lengths == [35, 36, 37]
    assert first.wait().lengths == list(range(2, 42))
    assert max(rig.decoder.parts) <= 10


def test_short_prompts_are_read_together_within_a_step(make) -> None:
    rig = make(sequences=8, per_step=20)
    clients = [rig.submit(prompt, 3)[0] for prompt in (4, 5, 3, 9, 2)]
    rig.start()
    for client, prompt in zip(clients, (4, 5, 3, 9, 2), strict=True):
        assert client.wait().lengths == list(range(prompt, prompt + 3))
    assert rig.decoder.parts == [15, 18]


def test_answer_ends_with_the_end_token_which_has_no_text(make) -> None:
    rig = make()
    client, _ = rig.submit(47, 20)
    rig.start()
    assert client.wait().lengths == [47, 48, 49]
    assert client.finish == "stop"
    assert client.parts[-1].tokens == 4


def test_end_token_is_ignored_on_request(make) -> None:
    rig = make()
    client, _ = rig.submit(47, 5, ignore_end=True)
    rig.start()
    assert client.wait().lengths == [47, 48, 49, 50, 51]


def test_answer_ends_before_a_stop_text(make) -> None:
    rig = make()
    client, _ = rig.submit(3, 20, stop=(chr(206) + chr(207),))
    rig.start()
    assert client.wait().lengths == [3, 4, 5]
    assert client.finish == "stop"


def test_cancelled_sequence_leaves_before_the_next_token(make) -> None:
    rig = make()
    cancelled, generation = rig.submit(1, 90, ignore_end=True)
    other, _ = rig.submit(2, 30)
    steps = iter(range(1000))

    def cancel_at_the_fifth() -> None:
        if next(steps) == 4:
            rig.engine.cancel(generation)

    rig.decoder.before_step = cancel_at_the_fifth
    rig.start()
    assert cancelled.wait().finish == "cancelled"
    assert len(cancelled.lengths) == 6
    assert other.wait().lengths == list(range(2, 32))
    assert rig.decoder.batches[-1] == 1


def test_cancelled_request_that_waits_is_never_read(make) -> None:
    rig = make()
    _, generation = rig.submit(1, 5)
    rig.engine.cancel(generation)
    other, _ = rig.submit(3, 1)
    rig.start()
    other.wait()
    assert rig.decoder.parts == [3]
    assert rig.metric('vllm:request_success_total{finished_reason="abort"') == 1


def test_further_requests_are_refused_when_enough_wait(make) -> None:
    rig = make(waiting=2)
    rig.submit(5, 1)
    rig.submit(6, 1)
    with pytest.raises(errors.Temporary, match="2 wait"):
        rig.submit(7, 1)
    assert rig.metric("vllm:num_requests_waiting") == 2
    assert rig.metric("slipway_prompt_tokens_waiting") == 11


def test_model_that_fails_for_a_prompt_ends_the_sequence_and_serves_the_next(make) -> None:
    rig = make()
    failed, _ = rig.submit(2, 5)
    rig.decoder.fails = True
    rig.start()
    assert failed.wait().finish == "error"
    rig.decoder.fails = False
    served, _ = rig.submit(3, 2)
    assert served.wait().lengths == [3, 4]


def test_answer_that_cannot_be_decoded_ends_and_the_others_go_on(make) -> None:
    rig = make()
    failed, generation = rig.submit(2, 9)
    other, _ = rig.submit(4, 5)
    generation.text = Illegible()
    rig.start()
    assert failed.wait().finish == "error"
    assert other.wait().lengths == [4, 5, 6, 7, 8]


def test_model_that_fails_for_a_token_ends_its_sequences_and_serves_the_next(make) -> None:
    rig = make()

    def fail() -> None:
        rig.decoder.fails = True

    rig.decoder.before_step = fail
    failed, _ = rig.submit(2, 5)
    rig.start()
    assert failed.wait().finish == "error"
    assert failed.lengths == [2]
    rig.decoder.before_step = lambda: None
    rig.decoder.fails = False
    served, _ = rig.submit(3, 2)
    assert served.wait().lengths == [3, 4]


def test_engine_whose_steps_all_fail_is_dead_until_one_succeeds(make) -> None:
    rig = make()
    rig.decoder.fails = True
    rig.start()
    for _ in range(engine.MOST_FAILURES):
        assert rig.engine.obstacle(clock.monotonic()) == ""
        assert rig.submit(2, 5)[0].wait().finish == "error"
    assert rig.engine.obstacle(clock.monotonic()) == "the model failed 3 times in a row; see its log"
    rig.decoder.fails = False
    for _ in range(2):  # the first step has ended when the second one begins
        assert rig.submit(3, 1)[0].wait().lengths == [3]
    assert rig.engine.obstacle(clock.monotonic()) == ""


def test_engine_is_hung_when_the_model_does_not_return(make) -> None:
    rig = make()
    began, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        assert may_end.wait(10)

    rig.decoder.before_step = hang
    client, _ = rig.submit(2, 2)
    rig.start()
    assert began.wait(10)
    now = clock.monotonic()
    assert rig.engine.obstacle(now + engine.LONGEST_CALL_SECONDS - 10) == ""
    late = now + engine.LONGEST_CALL_SECONDS + 1
    assert rig.engine.obstacle(late) == "the model has not returned for 301 s"
    may_end.set()
    assert client.wait().lengths == [2, 3]


def test_engine_is_not_hung_when_the_calls_of_a_step_are_slow_together(
    make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make(per_step=10)
    now = 1000.0
    obstacles: list[str] = []

    def slow(call: Callable[..., "torch.Tensor"]) -> Callable[..., "torch.Tensor"]:
        def slowed(*arguments: object) -> "torch.Tensor":
            nonlocal now
            now += engine.LONGEST_CALL_SECONDS - 1
            obstacles.append(rig.engine.obstacle(now))
            return call(*arguments)

        return slowed

    for name in ("prefill", "prefill_chunk", "step"):
        monkeypatch.setattr(rig.decoder, name, slow(getattr(rig.decoder, name)))
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    clients = [rig.submit(2, 20)[0], rig.submit(35, 3)[0]]
    rig.start()
    for client in clients:
        client.wait()
    assert set(obstacles) == {""}


def test_engine_without_work_is_not_hung_after_any_time(make) -> None:
    rig = make()
    rig.start()
    rig.submit(2, 3)[0].wait()
    deadline = time.monotonic() + 10
    while rig.engine.obstacle(clock.monotonic() + 1e6):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_engine_that_has_ended_is_dead(make) -> None:
    rig = make()
    rig.engine.stop()
    rig.start()
    rig.thread.join(10)
    assert rig.engine.obstacle(clock.monotonic()) == "the engine has ended; see its log"


def test_every_sequence_ends_when_the_model_fails_as_one_is_moved(make) -> None:
    rig = make()
    rig.decoder.move_fails = True
    ended, _ = rig.submit(5, 2)
    moved, _ = rig.submit(6, 20)
    rig.start()
    assert ended.wait().lengths == [5, 6]
    assert moved.wait().finish == "error"


def test_no_sequence_ends_twice_when_the_model_fails_as_another_is_moved(make) -> None:
    rig = make()
    rig.decoder.move_fails = True
    both = [rig.submit(5, 2)[0], rig.submit(5, 2)[0]]
    moved, _ = rig.submit(6, 20)
    rig.start()
    assert moved.wait().finish == "error"
    assert [[part.finish for part in client.parts if part.finish] for client in both] == [["length"]] * 2


def test_sequence_without_numbers_ends_and_its_row_is_cleared_before_others_move(make) -> None:
    rig = make()
    rig.decoder.without_numbers = {22}
    ended, _ = rig.submit(3, 3)
    failed, _ = rig.submit(20, 9)
    other, _ = rig.submit(30, 5)
    rig.start()
    assert failed.wait().finish == "error"
    assert failed.lengths == [20, 21]
    assert ended.wait().lengths == [3, 4, 5]
    assert other.wait().lengths == [30, 31, 32, 33, 34]
    assert rig.decoder.changes[0] == ("clear", 1)
    assert rig.metric('vllm:request_success_total{finished_reason="error"') == 1
    served, _ = rig.submit(40, 2)
    assert served.wait().lengths == [40, 41]


@pytest.mark.parametrize("prompt", [8, 25], ids=["short", "long"])
def test_prompt_without_numbers_ends_its_request(make, prompt: int) -> None:
    rig = make(per_step=10)
    rig.decoder.without_numbers = {prompt}
    failed, _ = rig.submit(prompt, 4)
    rig.start()
    assert failed.wait().finish == "error"
    assert failed.lengths == []
    assert rig.decoder.changes == [("clear", 0)]


def test_stopped_engine_ends_what_waits(make) -> None:
    rig = make()
    client, _ = rig.submit(2, 5)
    rig.engine.stop()
    rig.start()
    assert client.wait().finish == "error"


def test_log_probabilities_are_those_of_the_model(make) -> None:
    rig = make()
    client, _ = rig.submit(3, 1, sampling=Sampling(temperature=0, alternatives=2))
    rig.start()
    (choice,) = client.wait().parts[-1].choices
    expected = torch.nn.functional.one_hot(torch.tensor(3), VOCABULARY).float().log_softmax(-1)
    assert choice.token == 3
    assert choice.logprob == pytest.approx(float(expected[3]))
    assert choice.alternatives[0] == (3, pytest.approx(float(expected[3])))


def test_reported_tokens_have_their_place_in_the_text(make) -> None:
    rig = make()
    client, generation = rig.submit(3, 4, sampling=Sampling(temperature=0, alternatives=0))
    generation.text = Pairs()
    rig.start()
    choices = [choice for part in client.wait().parts for choice in part.choices]
    assert [choice.token for choice in choices] == [3, 4, 5, 6]
    assert [choice.offset for choice in choices] == [0, 0, 2, 2]


def test_page_counts_tokens_and_times(make) -> None:
    rig = make()
    client, _ = rig.submit(3, 4)
    rig.start()
    client.wait()
    rig.engine.stop()
    rig.thread.join(10)
    assert rig.metric("vllm:prompt_tokens_total") == 3
    assert rig.metric("vllm:generation_tokens_total") == 4
    assert rig.metric("vllm:time_to_first_token_seconds_count") == 1
    assert rig.metric("vllm:inter_token_latency_seconds_count") == 3
    assert rig.metric('vllm:request_success_total{finished_reason="length"') == 1
    assert rig.metric("vllm:num_requests_running") == 0


def test_next_turn_of_a_chat_is_read_from_its_new_tokens_on(make) -> None:
    rig = make()
    rig.start()
    first, _ = rig.submit(80, 5)
    answer = first.wait().lengths
    # The last token of the answer is in no row: no step has read it.
    second, _ = rig.submit((*(1,) * 80, *answer, 2, 2), 3)
    assert second.wait().lengths == [87, 88, 89]
    assert rig.decoder.parts == [80, 3]
    assert rig.metric("vllm:prefix_cache_queries_total") == 80 + 87
    assert rig.metric("vllm:prefix_cache_hits_total") == 84
    assert rig.metric("vllm:prompt_tokens_total") == 80 + 87


def test_chat_that_its_client_has_left_is_continued_from_there(make) -> None:
    rig = make()
    rig.start()
    first, generation = rig.submit(80, 100)
    rig.decoder.before_step = lambda: rig.engine.cancel(generation)
    answer = first.wait().lengths
    second, _ = rig.submit((*(1,) * 80, *answer, 2), 1)
    assert second.wait().finish == "length"
    assert rig.decoder.parts == [80, 2]


def test_nothing_is_held_when_the_model_has_failed(make) -> None:
    rig = make()
    rig.start()
    first, _ = rig.submit(80, 5)
    first.wait()
    rig.decoder.fails = True
    assert rig.submit(3, 5)[0].wait().finish == "error"
    rig.decoder.fails = False
    again, _ = rig.submit(81, 1)
    assert again.wait().finish == "length"
    assert rig.decoder.parts == [80, 81]


@pytest.mark.parametrize("seed", range(8))
def test_answers_are_equal_when_rows_hold_ended_sequences(make, seed: int) -> None:
    def turns(held_rows: int) -> tuple[list[list[int]], int]:
        draw = random.Random(seed)
        rig = make(sequences=4, per_step=40, held_rows=held_rows, decoder=SummingDecoder)
        rig.start()
        begin = [draw.randrange(3) for _ in range(64)]
        chats = [[*begin, *(draw.randrange(3) for _ in range(draw.randrange(4)))] for _ in range(6)]
        for _ in range(4):
            lengths = [draw.randint(1, 8) for _ in chats]
            answers = [
                rig.submit(chat, tokens, ignore_end=True)[0]
                for chat, tokens in zip(chats, lengths, strict=True)
            ]
            for chat, answer in zip(chats, answers, strict=True):
                chat += [*answer.wait().lengths, draw.randrange(3)]
        return chats, sum(rig.decoder.parts)

    without, read_without = turns(0)
    held, read = turns(4)
    assert held == without
    assert read < read_without / 2


def test_stream_waits_for_few_calls_when_many_prompts_have_a_held_prefix(make) -> None:
    rig = make(sequences=32, waiting=32, per_step=100, per_call=25)
    rig.start()
    rig.submit(80, 1)[0].wait()
    stream, _ = rig.submit(3, 40)
    clients = [rig.submit(81, 1)[0] for _ in range(20)]
    for client in (*clients, stream):
        client.wait()
    assert max(rig.decoder.calls[1:]) == 4, "the first step is the stream's"


def test_rest_of_a_long_prompt_counts_as_its_tokens_when_no_prefix_is_held(make) -> None:
    rig = make(per_step=50, per_call=50)
    clients = [rig.submit(60, 2)[0], rig.submit(30, 2)[0]]
    rig.start()
    for client in clients:
        client.wait()
    assert rig.decoder.parts == [50, 10, 30]
    assert rig.decoder.calls[0] == 3, "the rest of 10 and the prompt of 30 are of one step"


def test_prompt_is_read_in_chunks_when_copies_of_an_ended_sequence_take_a_part_of_the_step(make) -> None:
    rig = make(per_step=40)
    clients = [rig.submit(150, 1)[0], rig.submit(38, 1)[0]]
    rig.start()
    for client in clients:
        client.wait()
    assert rig.decoder.parts == [40, 40, 40, 30, 40 - 150 // engine.COPIES_PER_TOKEN, 2]
