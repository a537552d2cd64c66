"""An open loop of requests at given moments, in a separate process; prints one JSON line for each.

    python open_load.py URL [--features 64] [--patience 30] < moments

Standard input has lines, each a JSON array of moments in seconds of the machine's monotonic clock; the
process ends after the requests of its last line. A line of output has [moment, seconds from that moment to
the end of the answer, status, error]; status 0 is an error of the connection, or a request without an answer
in time. The error is the text of both, or the body of another answer than 200. Requests are not retried.
"""

import argparse
import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from sys import stdin

import aiohttp

HEADERS = {"content-type": "application/json"}
LINE_BYTES = 1 << 24
"""Longest line of standard input: the moments of an hour at 100 requests per second are 1.5 MB."""
ERROR_CHARACTERS = 200


def body(features: int) -> bytes:
    tensor = {"name": "input", "shape": [1, features], "datatype": "FP64", "data": [1.0] * features}
    return json.dumps({"inputs": [tensor]}).encode()


async def one(session: aiohttp.ClientSession, url: str, content: bytes, moment: float) -> None:
    status, error = 0, ""
    try:
        async with session.post(url, data=content, headers=HEADERS) as answer:
            text = await answer.text(errors="replace")
            status, error = answer.status, "" if answer.status == 200 else text
    except (aiohttp.ClientError, TimeoutError, OSError) as failure:
        error = repr(failure)
    row = [moment, round(time.monotonic() - moment, 4), status, error[:ERROR_CHARACTERS]]
    print(json.dumps(row), flush=True)


async def moments() -> AsyncIterator[float]:
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), stdin)
    while line := await reader.readline():
        for moment in json.loads(line):
            yield moment


async def main(url: str, features: int, patience: float) -> None:
    content, timeout = body(features), aiohttp.ClientTimeout(total=patience)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session,
        asyncio.TaskGroup() as group,
    ):
        async for moment in moments():
            await asyncio.sleep(max(moment - time.monotonic(), 0.0))
            group.create_task(one(session, url, content, moment))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--features", type=int, default=1)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds")
    options = parser.parse_args()
    gc.disable()  # a collection would delay requests
    asyncio.run(main(options.url, options.features, options.patience))
