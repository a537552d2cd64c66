"""Metrics pages of replicas that want to be expensive, and pages of any content."""

import asyncio
import math
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.policy.config import Metric
from autoscaler.signals import engines, exposition
from autoscaler.signals.gauges import Gauges, GaugesToRead
from serving.engines import shipped
from serving.kube import Key
from serving.objects import Object
from tests.fakes.kube import FakeKube
from tests.rig.machine.tcp_server import tcp_server

NAMES = engines.EnginePageParser(shipped())
WAITING = "vllm:num_requests_waiting"
ENOUGH_SECONDS = 4.0
"""Of processor time, after which a measurement ends."""


def is_linear(work: Callable[[str], object], small: str, large: str) -> bool:
    """Measure two pages by turns, until the larger has taken at most three times the smaller's time."""
    best = [math.inf, math.inf]
    begun = time.process_time()
    while time.process_time() - begun < ENOUGH_SECONDS:
        for index, page in enumerate((small, large)):
            start = time.process_time()
            work(page)
            best[index] = min(best[index], time.process_time() - start)
        if best[1] <= 3 * best[0]:
            return True
    return False


OPEN, LABEL = 'a="', 'a="b",'
PAGES: dict[str, Callable[[int], str]] = {
    "word": lambda size: f"{WAITING}{{{'a' * size}}} 1",
    "unknown": lambda size: f"a{{{'a' * size}}} 1",
    "name": lambda size: "a" * size,
    "open": lambda size: f"{WAITING}{{" * (size // 26),
    "braces": lambda size: f"{WAITING}{{{'}' * size}",
    "spaces": lambda size: f"{WAITING}{' ' * size}",
    "quotes": lambda size: f"{WAITING}{{{OPEN * (size // 3)}}} 1",
    "escapes": lambda size: 'a="\\' * (size // 4),
    "labels": lambda size: f"{WAITING}{{{LABEL * (size // 6)}}} 1",
    "lines": lambda size: "a\n" * (size // 2),
    "samples": lambda size: f"{WAITING} 1\n" * (size // 28),
}


@pytest.mark.parametrize("shape", PAGES)
@pytest.mark.parametrize("work", [NAMES.parse, exposition._labels], ids=["engines", "exposition"])
def test_parsing_takes_linear_time_when_a_page_is_made_to_be_expensive(
    work: Callable[[str], object], shape: str
) -> None:
    assert is_linear(work, PAGES[shape](100_000), PAGES[shape](200_000))


@given(
    st.lists(
        st.sampled_from(["a", "é", "{", "}", '"', "=", ",", " ", "\n", "\r", "\\", "#", "1", "e", WAITING])
    ).map("".join)
)
def test_reading_is_finite_when_a_page_has_any_content(page: str) -> None:
    waiting = NAMES.parse(page).waiting
    assert waiting is None or 0 <= waiting < math.inf


LABELS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters='"\n\r'), max_size=20), max_size=3)
JUNK = st.text(st.characters(exclude_characters="\n"), max_size=40).map(lambda text: f"# {text}")


@given(st.lists(st.tuples(LABELS, st.integers(0, 10**6), JUNK), min_size=1))
def test_reading_is_the_sum_of_the_samples_when_other_lines_lie_between(
    samples: list[tuple[list[str], int, str]],
) -> None:
    page = ""
    for values, number, junk in samples:
        labels = ",".join(f'l{index}="{value}"' for index, value in enumerate(values))
        page += f"{junk}\n{WAITING}{{{labels}}} {number}\nx{WAITING} 7\n"
    assert NAMES.parse(page).waiting == sum(number for _, number, _ in samples)


def test_sample_is_skipped_when_its_line_is_too_long() -> None:
    label = "b" * engines.LONGEST_LINE
    assert NAMES.parse(f'{WAITING}{{a="{label}"}} 1\n{WAITING} 2\n').waiting == 2


def pod(port: int | str) -> Object:
    annotations = {"prometheus.io/port": str(port)}
    return {
        "metadata": {"uid": "u", "annotations": annotations},
        "spec": {},
        "status": {"podIP": "127.0.0.1"},
    }


@pytest.mark.parametrize("answer", ["endless", "redirect", "port"])
async def test_replica_has_no_reading_when_its_page_is_endless_or_elsewhere(answer: str) -> None:
    asked: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{WAITING} 5\n".encode())

    async with tcp_server(elsewhere, host="127.0.0.2") as other:

        async def replica(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            if answer == "redirect":
                writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.2:%d/\r\n" % other)
                writer.write(b"content-length: 0\r\n\r\n")
                return
            writer.write(f"HTTP/1.1 200 OK\r\n\r\n{WAITING} 5\n".encode())
            for _ in range(1000):
                writer.write(b"a" * 65_536)
                await writer.drain()

        async with tcp_server(replica) as port:
            gauges, key = Gauges(FakeKube().client("test"), known_engines=shipped()), Key("default", "a")
            target = pod(f"80@127.0.0.2:{other}" if answer == "port" else port)
            metric = Metric("TokenQueueDepth", "TokenQueueDepth", None)
            try:
                await gauges.read({key: GaugesToRead([metric], [target])})
                values, health = gauges.last_values(key)
            finally:
                await gauges.close()
    assert (values, [source.healthy for source in health], asked) == ({}, [False], [])
