"""Tokens of several gateways are summed; rates are between two readings of one gateway."""

import pytest

from autoscaler.signals.board import Reading
from autoscaler.signals.exposition import ScaleTargetName, TargetTokens
from autoscaler.signals.token_board import QUEUED_SECONDS, TokenBoard

CHAT, OTHER = ScaleTargetName("default", "chat-a"), ScaleTargetName("default", "chat-b")
LONG = QUEUED_SECONDS + 1


def reading(
    at: float,
    processed: float,
    *,
    gateway: str = "g",
    started: float = 1.0,
    queued: float = 0,
    age: float = LONG,
) -> Reading:
    tokens = TargetTokens(processed, waiting=10 * queued, queued=queued, age=age)
    return Reading(gateway, at, started, {}, tokens={CHAT: tokens})


def test_target_that_no_gateway_counts_is_not_measured() -> None:
    board = TokenBoard()
    board.tick([reading(10, 100)], 10)
    assert board.waiting_tokens(OTHER) is None
    assert board.engine_load(OTHER, 1) is None


def test_first_reading_has_waiting_tokens_and_no_rate() -> None:
    board = TokenBoard()
    board.tick([reading(10, 100, queued=3)], 10)
    assert board.waiting_tokens(CHAT) == 30
    assert board.engine_load(CHAT, 1) is None


def test_rates_and_waiting_tokens_of_gateways_add_up() -> None:
    board = TokenBoard()
    board.tick([reading(10, 100), reading(10, 0, gateway="h")], 10)
    board.tick([reading(15, 600, queued=2), reading(15, 250, gateway="h", queued=1)], 15)
    load = board.engine_load(CHAT, 4)
    assert load is not None
    assert (load.tokens, load.waiting, load.replicas) == (150, 3, 4)
    assert board.waiting_tokens(CHAT) == 30


def test_requests_that_are_only_read_do_not_wait() -> None:
    board = TokenBoard()
    board.tick([reading(10, 0)], 10)
    board.tick([reading(15, 50, queued=2, age=QUEUED_SECONDS / 2)], 15)
    load = board.engine_load(CHAT, 1)
    assert load is not None
    assert load.waiting == 0


def test_counts_of_a_new_envoy_begin_at_zero() -> None:
    board = TokenBoard()
    board.tick([reading(10, 1000)], 10)
    board.tick([reading(15, 50, started=12)], 15)
    load = board.engine_load(CHAT, 1)
    assert load is not None
    assert load.tokens == 10


def test_tokens_count_once_when_a_later_start_is_computed_for_the_same_envoy() -> None:
    board = TokenBoard()
    board.tick([reading(1000, 1000)], 1000)
    board.tick([reading(1005, 1050, started=12)], 1005)
    load = board.engine_load(CHAT, 1)
    assert load is not None
    assert load.tokens == 10


def test_repeated_reading_keeps_the_rate() -> None:
    board = TokenBoard()
    for item in (reading(10, 0), reading(15, 50), reading(15, 50)):
        board.tick([item], item.read_at)
    load = board.engine_load(CHAT, 1)
    assert load is not None
    assert load.tokens == 10
    board.tick([], 20)
    assert board.waiting_tokens(CHAT) is None


def test_rate_and_waiting_tokens_are_current_when_the_clock_of_a_gateway_is_set_back() -> None:
    board = TokenBoard()
    board.tick([reading(5000, 0, queued=3)], 10)
    board.tick([reading(1405, 50)], 15)
    assert board.waiting_tokens(CHAT) == 0
    load = board.engine_load(CHAT, 1)
    assert load is not None
    assert load.tokens == 10


def test_rate_is_not_inflated_when_a_clock_is_set_back_by_nearly_a_tick() -> None:
    board = TokenBoard()
    board.tick([reading(1000, 0)], 10)
    board.tick([reading(1000.01, 50)], 15)
    load = board.engine_load(CHAT, 1)
    assert load is not None
    assert load.tokens == pytest.approx(10)


@pytest.mark.parametrize("later", [999.5, 1000.01])
def test_rate_is_by_our_clock_when_a_clock_is_set_back_between_ticks_of_a_second(later: float) -> None:
    board = TokenBoard()
    board.tick([reading(1000, 0)], 10)
    board.tick([reading(later, 50)], 11)
    load = board.engine_load(CHAT, 1)
    assert load is not None
    assert load.tokens == pytest.approx(50)
