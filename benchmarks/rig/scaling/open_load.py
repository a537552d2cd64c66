"""An open loop of requests at given moments, in a separate process; prints one JSON line for each.

    python open_load.py URL < moments

Standard input has a JSON array of moments, in seconds of the machine's monotonic clock. A line has [moment,
seconds from that moment to the end of the answer, status]; status 0 is an error of the connection, or a
request without an answer in time. Requests are not retried.
"""

import asyncio
import gc
import json
import sys
import time

import aiohttp

BODY = b'{"inputs":[{"name":"input","shape":[1],"datatype":"FP64","data":[1.0]}]}'
HEADERS = {"content-type": "application/json"}
PATIENCE_SECONDS = 120.0


async def one(session: aiohttp.ClientSession, url: str, moment: float) -> None:
    status = 0
    try:
        async with session.post(url, data=BODY, headers=HEADERS) as answer:
            await answer.read()
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        print(f"at {moment:.3f}: {error!r}", file=sys.stderr, flush=True)
    print(json.dumps([moment, round(time.monotonic() - moment, 4), status]), flush=True)


async def main(url: str, moments: list[float]) -> None:
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session,
        asyncio.TaskGroup() as group,
    ):
        for moment in moments:
            await asyncio.sleep(max(moment - time.monotonic(), 0.0))
            group.create_task(one(session, url, moment))


if __name__ == "__main__":
    gc.disable()  # a collection would delay requests
    asyncio.run(main(sys.argv[1], json.load(sys.stdin)))
