"""The autoscaler reads real metrics pages at the addresses that the gateways' Leases name."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from autoscaler.signals.board import Board
from autoscaler.signals.exposition import ScaleTargetName
from autoscaler.signals.pages import Pages
from serving import metrics
from serving.resources.leases import GatewayPages

TARGET = ScaleTargetName("default", "d-1")
LABELS = 'namespace="default",inference="d",predictor="p",revision="d-1"'


def gateway_page(name: str, *, buckets: bool = False) -> str:
    bucket = f'slipway_request_duration_seconds_bucket{{{LABELS},le="1"}} 7\n' if buckets else ""
    return (
        f"slipway_requests_received_total{{{LABELS}}} 7\n{bucket}"
        "slipway_gateway_reading_timestamp_seconds 1000\nslipway_envoy_start_time_seconds 1\n"
        f'slipway_gateway_info{{gateway="{name}"}} 1\n'
    )


def activator_page(name: str) -> str:
    return f'slipway_activator_info{{activator="{name}"}} 1\nslipway_requests_held{{{LABELS}}} 3\n'


@asynccontextmanager
async def served(folder: Path, **pages: str) -> AsyncIterator[dict[str, str]]:
    """Serve the pages of components on ports of their own; yield their URLs."""
    async with AsyncExitStack() as stack:
        urls = {}
        for component, text in pages.items():
            answers = {metrics.PATH: _returning(text), metrics.TOTALS_PATH: _returning(text)}
            note = folder / f"{component}.json"
            page = await stack.enter_async_context(metrics.served(answers, note, "127.0.0.1", 0))
            urls[component] = page.url
        yield urls


def _returning(text: str) -> Callable[[], Awaitable[str]]:
    async def page() -> str:
        return text

    return page


@asynccontextmanager
async def reading(named: dict[str, GatewayPages]) -> AsyncIterator[Pages]:
    pages = Pages(lambda: named)
    try:
        yield pages
    finally:
        await pages.close()


async def test_counts_of_all_gateways_and_held_requests_of_their_activators_are_read(tmp_path: Path) -> None:
    texts = {"a": gateway_page("a"), "b": gateway_page("b"), "beside": activator_page("b")}
    async with served(tmp_path, **texts) as urls:
        named = {
            "a": GatewayPages(urls["a"], "", ""),
            "b": GatewayPages(urls["b"], urls["beside"], ""),
        }
        async with reading(named) as pages:
            read = await pages.read()
            assert {item.gateway: item.counts[TARGET].received for item in read.readings} == {"a": 7, "b": 7}
            assert read.held == {TARGET: 3}
            assert read.activators == {"b"}
            del named["a"]
            assert [item.gateway for item in (await pages.read()).readings] == ["b"]


async def test_held_requests_are_not_counted_when_the_page_names_no_activator(tmp_path: Path) -> None:
    foreign = f"slipway_requests_held{{{LABELS}}} 3\n"
    async with served(tmp_path, a=gateway_page("a"), beside=foreign) as urls:
        named = {"a": GatewayPages(urls["a"], urls["beside"], "")}
        async with reading(named) as pages:
            assert not (await pages.read()).held


async def test_page_with_durations_is_read_only_when_they_are_asked_for(tmp_path: Path) -> None:
    async def whole() -> str:
        return gateway_page("a", buckets=True)

    async def totals() -> str:
        return gateway_page("a")

    answers = {metrics.PATH: whole, metrics.TOTALS_PATH: totals}
    async with (
        metrics.served(answers, tmp_path / "a.json", "127.0.0.1", 0) as page,
        reading({"a": GatewayPages(page.url, "", "")}) as pages,
    ):
        assert not (await pages.read()).readings[0].buckets
        assert (await pages.read(frozenset({TARGET}))).readings[0].buckets == {TARGET: {1.0: 7.0}}


async def test_page_of_another_gateway_is_not_counted_and_the_status_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        served(tmp_path, a=gateway_page("b")) as urls,
        reading({"a": GatewayPages(urls["a"], "", "")}) as pages,
    ):
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                read = await pages.read()
        assert read.readings == ()
        assert caplog.messages == ["gateway a: its page is that of gateway 'b'"], "once, not at each tick"
        [health] = ticked(read.problems)
        assert (health.healthy, health.message) == (False, "its page is that of gateway 'b'")


async def test_lease_without_a_usable_url_is_a_problem_of_its_gateway_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with reading({"a": GatewayPages("", "", "not an http URL")}) as pages:
        with caplog.at_level(logging.WARNING):
            read = await pages.read()
    assert caplog.messages == ["gateway a: not an http URL"]
    [health] = ticked(read.problems)
    assert (health.source, health.healthy, health.message) == ("gateway-a", False, "not an http URL")


def ticked(problems: object) -> list[object]:
    board = Board()
    board.tick((), frozenset({"a"}), frozenset({TARGET}), {}, 0.0, unix_now=0.0, problems=problems)
    return list(board.health(0.0))
