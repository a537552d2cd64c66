"""What the controllers keep of a locust process, whose code is anybody's."""

import asyncio
import os
import types

import pytest

from serving.errors import Permanent, Temporary
from tuner.load import wire
from tuner.load.locust_process import LocustProcess, WindowMemory
from tuner.settings import LoadSettings

MIB = 1024 * 1024


class Flood:
    """A stream reader that repeats its data, and fails once far more was read than may be kept."""

    def __init__(self, first: bytes, again: bytes) -> None:
        self._data = first + again * (65_536 // len(again) + 1)
        self._again = again * (65_536 // len(again) + 1)
        self.size = 0

    async def read(self, most: int) -> bytes:
        data, self._data = self._data, self._again
        self.size += len(data)
        assert self.size < 40 * MIB, "an endless stream is read"
        return data


def locust_process(memory: WindowMemory | None = None) -> LocustProcess:
    process = types.SimpleNamespace(pid=os.getpid())
    return LocustProcess(process, LoadSettings(), memory or WindowMemory(MIB))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "again", "why"),
    [
        (wire.HEADER.pack(wire.REPLY, 0xFFFFFFFF), b"x", "a frame of kind b'S' with 4294967295 bytes"),
        (wire.HEADER.pack(wire.RECORDS, 0xFFFFFFFF), b"x", "a frame of kind b'R' with 4294967295 bytes"),
        (b"", wire.HEADER.pack(b"x", 5), "a frame of kind b'x'"),
        (b"", wire.frame(wire.ERROR, b"x"), "more than 65 error texts"),
        (b"", wire.frame(wire.REPLY, b"{}"), "2 replies to 0 commands"),
        (b"", wire.frame(wire.REPLY, b"[]"), "TypeError"),
        (b"", wire.frame(wire.REPLY, b"[" * 100_000), "RecursionError"),
        (b"", wire.frame(wire.TOKEN_GAPS, b""), "error: unpack_from requires"),
    ],
    ids=["long", "long-records", "kind", "errors", "replies", "list", "deep", "short"],
)
async def test_locust_has_ended_when_it_sends_more_than_it_may(first: bytes, again: bytes, why: str) -> None:
    locust = locust_process()
    locust.keep_records()
    await locust._read_frames(Flood(first, again))  # type: ignore[arg-type]
    assert locust.ended.is_set()
    failure = await locust.failure()
    assert (type(failure), failure.reason) == (Temporary, "LoadFailed")
    assert why in str(failure)


@pytest.mark.parametrize(
    "frame",
    [
        wire.frame(wire.RECORDS, bytes(wire.RECORD.size)),
        wire.frame(wire.TOKEN_GAPS, wire.GAPS.pack(0.0, 0)),
    ],
    ids=["records", "gaps"],
)
async def test_load_is_not_tried_again_when_a_window_has_more_records_than_are_kept(frame: bytes) -> None:
    locust = locust_process()
    locust.keep_records()
    await locust._read_frames(Flood(b"", frame))  # type: ignore[arg-type]
    assert locust.ended.is_set()
    failure = await locust.failure()
    assert (type(failure), failure.reason) == (Permanent, "LoadFailed")
    assert "more than 1048576 bytes of records in a window (tuner.load.window_bytes)" in str(failure)
    assert len(locust.records) < 2 * MIB


async def test_limit_of_a_window_is_of_all_processes_when_their_loads_differ() -> None:
    record = wire.frame(wire.RECORDS, bytes(wire.RECORD.size))
    memory = WindowMemory(4 * wire.RECORD.size)
    busy, idle = locust_process(memory), locust_process(memory)

    async def send(locust: LocustProcess, count: int) -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(record * count)
        reader.feed_eof()
        await locust._read_frames(reader)

    for _ in range(2):  # the windows
        for locust, count in ((busy, 3), (idle, 1)):
            locust.keep_records()
            await send(locust, count)
            assert locust._failure is None
        for locust in (busy, idle):
            locust.drop_records()
    busy.keep_records()
    idle.keep_records()
    await send(busy, 3)
    await send(idle, 2)
    assert isinstance(await idle.failure(), Permanent)


async def test_records_are_dropped_when_no_window_is_measured() -> None:
    locust, reader = locust_process(), asyncio.StreamReader()
    record = wire.frame(wire.RECORDS, bytes(wire.RECORD.size))
    reading = asyncio.create_task(locust._read_frames(reader))
    for keeps in (False, True, False):
        if keeps:
            locust.keep_records()
        else:
            locust.drop_records()
        reader.feed_data(record * 2)
        await asyncio.sleep(0.01)
        assert len(locust.records) == (2 * wire.RECORD.size if keeps else 0)
    reader.feed_eof()
    await reading


async def test_text_of_a_wrong_locustfile_is_short_and_utf8_when_it_is_written() -> None:
    locust, reader = locust_process(), asyncio.StreamReader()
    reader.feed_data(wire.frame(wire.REPLY, wire.line({"wrong": "\ud800" + "x" * 4 * MIB})))
    reader.feed_eof()
    await locust._read_frames(reader)
    with pytest.raises(Permanent) as raised:
        await locust.ready()
    assert str(raised.value) == "?" + "x" * 299
