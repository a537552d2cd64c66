"""Informers: every handler gets every change, and watches that end early are reopened with back-off."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import errors
from serving.kube import Informer
from serving.kube.connection.client import WatchEvent
from serving.kube.informer import (
    BUSY_PAUSE_CAP_SECONDS,
    LASTING_SECONDS,
    PAUSE_BASE_SECONDS,
    PAUSE_CAP_SECONDS,
    PAUSE_JITTER,
    REFUSED_PAUSE_CAP_SECONDS,
    WatchPauses,
)
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment
from tests.rig.control_plane.convergence import running, until


class EndingWatches(FakeKube):
    """Ends each watch at once, as a proxy with a broken upstream does, or refuses its version."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.opened: list[float] = []
        """Times at which watches were opened, in seconds of the loop."""

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
        self.opened.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        for event in ():
            yield event


async def test_change_reaches_the_other_handlers_when_one_raises(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeKube()
    informer = Informer(api, kinds.DEPLOYMENT)
    seen: list[str] = []

    def fail(_: Object | None, after: Object | None) -> None:
        raise KeyError("a bug")

    informer.on_change(fail)
    informer.on_change(lambda _, after: seen.append(after["metadata"]["name"] if after else "gone"))
    api.add(kinds.DEPLOYMENT, deployment("listed"))
    async with running(informer.run()) as (task,):
        await informer.synced.wait()
        api.add(kinds.DEPLOYMENT, deployment("watched"))
        await until(lambda: len(seen) == 2)
        api.remove(kinds.DEPLOYMENT, "default", "watched")
        await until(lambda: len(seen) == 3)
        assert not task.done()
    assert seen == ["listed", "watched", "gone"]
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in failures] == [
        "handler of deployments default/listed",
        "handler of deployments default/watched",
        "handler of deployments default/watched",
    ]
    assert all(record.exc_info for record in failures)


async def test_handler_gets_a_change_that_the_informer_has_seen() -> None:
    api = FakeKube()
    informer = Informer(api, kinds.DEPLOYMENT)
    seen: list[bool] = []
    informer.on_change(lambda _, after: seen.append(after is not None and informer.has_seen(after)))
    api.add(kinds.DEPLOYMENT, deployment("listed"))
    async with running(informer.run()):
        await informer.synced.wait()
        api.add(kinds.DEPLOYMENT, deployment("watched"))
        await until(lambda: len(seen) == 2)
    assert seen == [True, True]


@pytest.mark.parametrize("bug", [KeyError("a bug"), TypeError("a bug"), AttributeError("a bug")], ids=repr)
async def test_informer_ends_when_an_index_function_has_a_bug(bug: Exception) -> None:
    api = FakeKube()
    informer = Informer(api, kinds.DEPLOYMENT)

    def values(obj: Object) -> list[str]:
        if obj["metadata"]["name"] == "watched":
            raise bug
        return ["value"]

    informer.index("first", lambda obj: ["value"])
    informer.index("second", values)
    api.add(kinds.DEPLOYMENT, deployment("listed"))
    async with running(informer.run()) as (task,):
        await informer.synced.wait()
        api.add(kinds.DEPLOYMENT, deployment("watched"))
        await until(task.done)
        assert task.exception() is bug
    assert [informer.count(name, "value") for name in ("first", "second")] == [1, 1]


@pytest.mark.parametrize("error", [None, errors.Gone(410, "Expired", "too old")])
async def test_watch_is_reopened_with_growing_pauses_when_it_ends_at_once(error: Exception | None) -> None:
    api = EndingWatches(error)
    async with running(Informer(api, kinds.DEPLOYMENT).run()):
        await until(lambda: len(api.opened) >= 5)
    pauses = [after - before for before, after in itertools.pairwise(api.opened[:5])]
    least = [(1 - PAUSE_JITTER) * PAUSE_BASE_SECONDS * 2**n for n in range(4)]
    assert all(pause >= bound for pause, bound in zip(pauses, least, strict=True)), pauses


ends = st.tuples(st.floats(0, LASTING_SECONDS, exclude_max=True), st.booleans())


@given(st.lists(ends, min_size=1, max_size=40), st.floats(LASTING_SECONDS, 600))
def test_pauses_double_to_the_cap_and_begin_anew_after_a_watch_that_lasted(
    early: list[tuple[float, bool]], lasted: float
) -> None:
    pauses = WatchPauses()
    for number, (seconds, failed) in enumerate(early):
        whole = min(PAUSE_BASE_SECONDS * 2**number, PAUSE_CAP_SECONDS)
        assert (1 - PAUSE_JITTER) * whole <= pauses.after(seconds, failed=failed) <= whole
    assert pauses.after(lasted, failed=False) == 0
    assert 0 < pauses.after(lasted, failed=True) <= PAUSE_BASE_SECONDS


def test_pauses_after_refusals_are_longer_until_the_kind_may_be_read() -> None:
    pauses = WatchPauses()
    refused = [pauses.after(0, failed=True, refused=True) for _ in range(12)]
    assert (1 - PAUSE_JITTER) * REFUSED_PAUSE_CAP_SECONDS <= refused[-1] <= REFUSED_PAUSE_CAP_SECONDS
    assert sum(refused[:6]) <= 63 * PAUSE_BASE_SECONDS
    assert pauses.after(0, failed=True) <= PAUSE_CAP_SECONDS


@pytest.mark.parametrize(
    ("error", "is_longer"),
    [
        (errors.Forbidden(403, "Forbidden", "may not list"), True),
        (errors.Internal(500, "InternalError", "has failed"), False),
    ],
)
async def test_list_is_repeated_less_and_less_often_when_it_is_forbidden(
    monkeypatch: pytest.MonkeyPatch, error: Exception, *, is_longer: bool
) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise error

    api = FakeKube()
    monkeypatch.setattr(api, "list", refused)
    pauses = await first_pauses(Informer(api, kinds.DEPLOYMENT), 8, monkeypatch)
    assert (pauses[-1] > PAUSE_CAP_SECONDS) == is_longer


async def test_watch_that_is_forbidden_is_repeated_soon_when_the_kind_was_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = EndingWatches(errors.Forbidden(403, "Forbidden", "not yet"))
    pauses = await first_pauses(Informer(api, kinds.DEPLOYMENT), 12, monkeypatch)
    assert max(pauses) <= PAUSE_CAP_SECONDS


async def first_pauses(informer: Informer, count: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the first pauses of the informer, in none of which time passes."""
    pauses: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
            if len(pauses) == count:
                enough.set()
                await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", sleep)
        async with running(informer.run()), asyncio.timeout(2):
            await enough.wait()
    return pauses


@pytest.mark.parametrize(("asked", "pause"), [(7.0, 7.0), (3600.0, BUSY_PAUSE_CAP_SECONDS)])
async def test_watch_waits_as_long_as_a_busy_server_asks_for_and_half_a_minute_at_most(
    monkeypatch: pytest.MonkeyPatch, asked: float, pause: float
) -> None:
    api = EndingWatches(errors.Busy("too many requests", asked))
    assert await first_pauses(Informer(api, kinds.DEPLOYMENT), 1, monkeypatch) == [pause]


def test_pauses_differ_between_informers() -> None:
    assert len({WatchPauses().after(0, failed=True) for _ in range(20)}) > 1
