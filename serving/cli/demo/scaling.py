"""The demo's autoscaling steps: a burst adds replicas, silence removes all, a request starts one again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from serving import clock, errors
from serving.cli.autoscale import lookup, summary
from serving.cli.demo.clients import Clients
from serving.cli.demo.console import Story
from serving.cli.demo.objects import NAMESPACE, POLL_SECONDS, WAIT_SECONDS, sample, until
from serving.cli.demo.report import failures
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds

NAME = "digits-elastic"
ARM = f"{NAME}/only"
MANIFEST = "elastic.yaml"
RATE = 70
"""Requests per second of the burst: with 25 per replica it needs three, and two clients can send it on a busy
machine."""
BURST_REPLICAS = 3
"""Replicas that the burst must add up to."""
MAX_OUTSTANDING = 20
"""Unanswered requests at which sending pauses: on a slow machine clients must not go on after the burst."""
COLUMNS = (("Seconds", 7), ("Desired", 7), ("Ready", 5), ("Rule", 10), ("Reason", 0))
"""Columns with their widths, which are fixed as rows are printed one by one."""


class ScalingTable:
    """Prints a row at each change of the demo's Autoscaler."""

    def __init__(self, story: Story, kube: Kube, arm: str) -> None:
        """`arm` is INFERENCE/PREDICTOR."""
        self._story, self._kube, self._arm = story, kube, arm
        self._last: list[str] = []

    def head(self) -> None:
        """Print the header."""
        self._story.show(_line([name.upper() for name, _ in COLUMNS]))

    async def until(
        self, holds: Callable[[Object], bool], at_each_read: Callable[[], None] = lambda: None
    ) -> bool:
        """Print changes until `holds` is true of the status; return whether that was within `WAIT_SECONDS`.

        `at_each_read` is called before each read of the Autoscaler, every `POLL_SECONDS`.
        """
        deadline = clock.monotonic() + WAIT_SECONDS
        while clock.monotonic() < deadline:
            at_each_read()
            with suppress(errors.Unavailable):
                (scaler,) = await lookup.read(self._kube, NAMESPACE, self._arm)
                self._show(scaler)
                if holds(scaler.get("status") or {}):
                    return True
            await asyncio.sleep(POLL_SECONDS)
        return False

    def _show(self, scaler: Object) -> None:
        cells = dict(zip(summary.HEADERS, summary.row(scaler), strict=True))
        now = ["" if cells[name] is None else str(cells[name]) for name, _ in COLUMNS[1:]]
        key_cells = now[:3]  # counts and rule: the rest changes all the time
        if key_cells != self._last:
            self._last = key_cells
            self._story.show(_line([f"{self._story.seconds:.1f}", *now]))


def _line(cells: list[str]) -> str:
    padded = (f"{cell:<{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))
    return "  ".join(padded).rstrip()


async def scale(story: Story, kube: Kube, clients: Clients) -> None:
    """Run the burst, the silence and the request that starts a replica."""
    (inference,) = sample(MANIFEST)
    story.step(f"An endpoint that is sized by its load: slipway apply -f manifests/samples/{MANIFEST}")
    await kube.apply(kinds.INFERENCE, inference, manager="slipway")
    story.doing("starting a replica, and proving it")
    await until(kube, kinds.INFERENCE, NAME, "Ready")
    table = ScalingTable(story, kube, ARM)
    await _burst(story, table, clients)
    await silence(story, table)
    await _wake(story, table, clients)


async def _burst(story: Story, table: ScalingTable, clients: Clients) -> None:
    story.step(f"A burst of {RATE} requests/s, with a replica for each 25: slipway autoscale status {ARM} -w")
    table.head()
    began, sent_count = clock.monotonic(), 0

    def send() -> None:
        nonlocal sent_count
        outstanding = sent_count - len(clients.rows)
        due = min(int(RATE * (clock.monotonic() - began)) - sent_count, MAX_OUTSTANDING - outstanding)
        if due > 0:
            clients.send(due)
            sent_count += due
        story.doing(f"{len(clients.rows)} requests answered")

    enough = await table.until(lambda status: status.get("readyReplicas", 0) >= BURST_REPLICAS, send)
    await clients.until(sent_count, lambda count: story.doing(f"{count} of {sent_count} requests answered"))
    story.check(f"the burst brought {BURST_REPLICAS} replicas or more", holds=enough)
    failed = failures(clients.rows)
    story.check(
        f"{len(clients.rows)} requests, {len(failed)} errors", holds=bool(clients.rows) and not failed
    )


async def silence(story: Story, table: ScalingTable) -> None:
    """Wait for zero replicas."""
    story.step(
        "Silence: zero replicas 3 s after the last request "
        "(idleSeconds: 3 in the manifest; else the time is learned)"
    )
    table.head()
    reached_zero = await table.until(_is_at_zero)
    story.check("silence took the last replica", holds=reached_zero)


async def _wake(story: Story, table: ScalingTable, clients: Clients) -> None:
    story.step("One request: it is held, not refused, until a replica is there")
    table.head()
    before = len(clients.rows)
    clients.send(1)
    awake = await table.until(lambda status: status.get("readyReplicas", 0) > 0)
    await clients.until(before + 1, lambda _: story.doing("waiting for the answer"))
    answered = clients.rows[before:]
    seconds = answered[0].milliseconds / 1000 if answered else float("nan")
    story.check(
        "it was answered, by a replica that it woke",
        holds=awake and bool(answered) and not failures(answered),
    )
    story.show(f"the request that woke it waited {seconds:.2f} s")


def _is_at_zero(status: Object) -> bool:
    return status.get("desiredReplicas") == 0 and status.get("currentReplicas") == 0
