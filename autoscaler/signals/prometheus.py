"""Asks a Prometheus for the value of a query now."""

import math
from typing import Any

import aiohttp
import orjson

from serving import errors

TIMEOUT_SECONDS = 4.0
"""Less than the time between two ticks; a query that takes longer is not for a controller."""


async def instant(session: aiohttp.ClientSession, server: str, query: str) -> float:
    """Return the sum of an instant query's values.

    Args:
        session: of the caller.
        server: its base URL.
        query: PromQL.

    Raises:
        errors.Unavailable: no answer in time, or one that is no finite number from 0 on.
    """
    url = f"{server.rstrip('/')}/api/v1/query"
    try:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with session.get(url, params={"query": query}, timeout=timeout) as response:
            answer = orjson.loads(await response.read())
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise errors.Unavailable(f"{server}: {type(error).__name__}: {error}") from error
    return value(answer)


def value(answer: Any) -> float:
    """Return the sum of what an answer of Prometheus's HTTP API says.

    Raises:
        errors.Unavailable: it is an error, empty, or no finite number from 0 on.
    """
    try:
        if answer["status"] != "success":
            raise errors.Unavailable(f"the query was refused: {answer.get('error', '')}")
        data = answer["data"]
        samples = [data["result"]] if data["resultType"] == "scalar" else [s["value"] for s in data["result"]]
        found = [float(sample[1]) for sample in samples]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise errors.Unavailable(f"the answer is not one of Prometheus: {error!r}") from error
    if not found:
        raise errors.Unavailable("the query has no result")
    total = sum(found)
    if not math.isfinite(total) or total < 0:
        raise errors.Unavailable(f"the query's value is {total}")
    return total
