"""A request to an API that hangs fails soon; one that only takes long does not."""

import asyncio
import itertools

import pytest

from serving import errors
from serving.kube.connection import hangs
from tests.rig.machine.tcp_server import tcp_server


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hangs, "PATIENCE_SECONDS", 0.01)


async def never() -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


async def no_answer() -> None:
    raise errors.Unavailable("GET /version") from TimeoutError()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_an_api_that_accepts_and_does_not_answer_is_reported_with_its_address() -> None:
    async with tcp_server(silent) as port:
        with pytest.raises(errors.Hung) as raised:
            await hangs.unless_hung(never(), "GET /x", f"https://127.0.0.1:{port}", no_answer)
    assert f"the API at https://127.0.0.1:{port} accepts connections" in str(raised.value)
    assert "(GET /x)" in str(raised.value)


async def test_an_api_that_accepts_no_connection_is_not_reported_as_hung() -> None:
    async with tcp_server(silent) as port:
        pass
    with pytest.raises(errors.Unavailable) as raised:
        await hangs.unless_hung(never(), "GET /x", f"https://127.0.0.1:{port}", no_answer)
    assert not isinstance(raised.value, errors.Hung)


async def test_a_long_request_is_waited_for_while_the_api_answers_others() -> None:
    probes = itertools.count(1)
    answered = asyncio.Event()

    async def answer() -> bytes:
        await answered.wait()
        return b"late"

    async def probe() -> None:
        if next(probes) == 3:
            answered.set()

    assert await hangs.unless_hung(answer(), "GET /x", "https://127.0.0.1:1", probe) == b"late"


async def test_the_error_of_a_request_is_raised_as_it_is() -> None:
    async def fails() -> bytes:
        raise errors.Unavailable("refused")

    with pytest.raises(errors.Unavailable, match=r"^refused$"):
        await hangs.unless_hung(fails(), "GET /x", "https://127.0.0.1:1", no_answer)


async def test_a_request_is_cancelled_with_its_caller() -> None:
    cancelled = asyncio.Event()

    async def answer() -> bytes:
        try:
            return await never()
        finally:
            cancelled.set()

    started = asyncio.ensure_future(
        hangs.unless_hung(answer(), "GET /x", "https://127.0.0.1:1", lambda: asyncio.sleep(0))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    started.cancel()
    await asyncio.wait({started})
    await asyncio.wait_for(cancelled.wait(), 1)
