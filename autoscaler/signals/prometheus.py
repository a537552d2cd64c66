"""Client of Prometheus's HTTP API: the value of a query now, and its values over a span of time."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from yarl import URL

from serving import errors

TIMEOUT_SECONDS = 4.0
"""Less than the time between two ticks; a query that takes longer is not for a controller."""
RANGE_TIMEOUT_SECONDS = 60.0
"""For two weeks of one series, for which no tick waits: half of what a Prometheus allows a query by default."""
MOST_BYTES = 4 * 1024 * 1024
"""Of an answer: two weeks of one series in steps of five minutes are 120 KB."""
_REFUSALS = frozenset({"bad_data", "execution"})
"""Values of `errorType` with which the same query fails again."""


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """PromQL, evaluated at `start` (Unix seconds) and each `step` seconds after it, until `end`."""

    query: str
    start: float
    end: float
    step: float


async def instant(session: aiohttp.ClientSession, server: str, query: str) -> float:
    """Return the sum of an instant query's values.

    Args:
        session: of the caller.
        server: its base URL.
        query: PromQL.

    Raises:
        errors.Unavailable: no answer in time, or none that is a finite number from 0 on.
    """
    return value(await _get(session, server, "query", {"query": query}, TIMEOUT_SECONDS))


async def over_time(session: aiohttp.ClientSession, server: str, query: RangeQuery) -> dict[float, float]:
    """Return a query's values by Unix seconds, as `values` does.

    Raises:
        errors.Unavailable: no answer in time, or not the answer of a Prometheus.
        errors.Permanent: the query is refused.
    """
    parameters = {
        "query": query.query,
        "start": f"{query.start:.3f}",
        "end": f"{query.end:.3f}",
        "step": f"{query.step:g}",
    }
    answer = await _get(session, server, "query_range", parameters, RANGE_TIMEOUT_SECONDS)
    return values(answer, query.start, query.end)


async def _get(
    session: aiohttp.ClientSession, server: str, path: str, parameters: Mapping[str, str], seconds: float
) -> Any:
    try:
        timeout = aiohttp.ClientTimeout(total=seconds)
        url = URL(f"{server.rstrip('/')}/api/v1/{path}")
        async with session.get(url, params=parameters, timeout=timeout) as response:
            body = bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > MOST_BYTES:
                    raise errors.Unavailable(f"{shown(server)}: an answer of more than {MOST_BYTES} bytes")
            status = response.status
    except TimeoutError as error:
        raise errors.Unavailable(f"{shown(server)}: no answer within {seconds:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise errors.Unavailable(f"{shown(server)}: {type(error).__name__}: {error}") from error
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise errors.Unavailable(f"{shown(server)}: status {status}, and no JSON") from error


def shown(server: str) -> str:
    """Return a URL without its credentials, for messages that others read."""
    try:
        return str(URL(server).with_user(None))
    except ValueError:
        return "the configured address"


def values(answer: Any, start: float, end: float) -> dict[float, float]:
    """Return what an answer to a range query has, by Unix seconds: the sum over its series.

    Values that are not finite or below 0, and times outside of `start` to `end`, are left out.

    Raises:
        errors.Unavailable: it is an error, or no range.
        errors.Permanent: the query is refused.
    """
    total: dict[float, float] = {}
    try:
        if answer["status"] != "success":
            message = f"the query was refused: {answer.get('error', '')}"
            if answer.get("errorType") in _REFUSALS:
                raise errors.Permanent("QueryRefused", message)
            raise errors.Unavailable(message)
        if answer["data"]["resultType"] != "matrix":
            raise errors.Unavailable("the answer has no range of values")
        for series in answer["data"]["result"]:
            for moment, text in series["values"]:
                time, number = float(moment), float(text)
                if start <= time <= end and 0 <= number < math.inf:
                    total[time] = total.get(time, 0.0) + number
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.Unavailable(f"the answer is not one of Prometheus: {error!r}") from error
    return total


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
        values = [float(sample[1]) for sample in samples]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise errors.Unavailable(f"the answer is not one of Prometheus: {error!r}") from error
    if not values:
        raise errors.Unavailable("the query has no result")
    total = sum(values)
    if not math.isfinite(total) or total < 0:
        raise errors.Unavailable(f"the query's value is {total}")
    return total
