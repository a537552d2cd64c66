"""What the controllers keep of a locust process, whose code is anybody's."""

import asyncio
import os
import types

import pytest

from serving.errors import Permanent, Temporary
from tuner.load import wire
from tuner.load.locust_process import LocustProcess
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


def locust_process() -> LocustProcess:
    process = types.SimpleNamespace(pid=os.getpid())
    return LocustProcess(process, LoadSettings(), MIB)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "again", "why"),
    [
        (wire.HEADER.pack(wire.REPLY, 0xFFFFFFFF), b"x", "a frame of kind b'S' with 4294967295 bytes"),
        (wire.HEADER.pack(wire.RECORDS, 0xFFFFFFFF), b"x", "a frame of kind b'R' with 4294967295 bytes"),
        (b"", wire.HEADER.pack(b"x", 5), "a frame of kind b'x'"),
        (b"", wire.frame(wire.RECORDS, bytes(wire.RECORD.size)), "more than 1048576 bytes of records"),
        (b"", wire.frame(wire.TOKEN_GAPS, wire.GAPS.pack(0.0, 0)), "more than 1048576 bytes of records"),
        (b"", wire.frame(wire.ERROR, b"x"), "more than 65 error texts"),
        (b"", wire.frame(wire.REPLY, b"{}"), "2 replies to 0 commands"),
        (b"", wire.frame(wire.REPLY, b"[]"), "TypeError"),
        (b"", wire.frame(wire.REPLY, b"[" * 100_000), "RecursionError"),
        (b"", wire.frame(wire.TOKEN_GAPS, b""), "error: unpack_from requires"),
    ],
    ids=["long", "long-records", "kind", "records", "gaps", "errors", "replies", "list", "deep", "short"],
)
async def test_locust_has_ended_when_it_sends_more_than_it_may(first: bytes, again: bytes, why: str) -> None:
    locust = locust_process()
    locust.keep_records()
    await locust._read_frames(Flood(first, again))  # type: ignore[arg-type]
    assert locust.ended.is_set()
    failure = await locust.failure()
    assert (type(failure), failure.reason) == (Temporary, "LoadFailed")
    assert why in str(failure)
    assert len(locust.records) < 2 * MIB


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
