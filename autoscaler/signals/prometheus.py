"""Client of Prometheus's HTTP API for instant and range queries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from serving import errors
from serving.system.network import addresses, http_reading

TIMEOUT_SECONDS = 4.0
"""Timeout of an instant query: less than the time between two ticks."""
RANGE_TIMEOUT_SECONDS = 60.0
"""Timeout of a range query, for which no tick waits: half of Prometheus's default query timeout."""
MOST_BYTES = 4 * 1024 * 1024
"""Largest answer: two weeks of one series in steps of five minutes are 120 KB."""
_REFUSALS = frozenset({"bad_data", "execution"})
"""Values of `errorType` of queries that fail at every attempt."""


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """PromQL, evaluated from `start` to `end` (Unix seconds) every `step` seconds."""

    query: str
    start: float
    end: float
    step: float


async def query_instant(session: aiohttp.ClientSession, server: str, query: str) -> float:
    """Return the sum of an instant query's values.

    Args:
        session: from `http_reading.session`.
        server: base URL of the Prometheus.
        query: PromQL.

    Raises:
        errors.Unavailable: no answer in time, or the value is not a finite number of at least 0.
    """
    return parse_instant(await _get(session, server, "query", {"query": query}, seconds=TIMEOUT_SECONDS))


async def query_range(
    session: aiohttp.ClientSession, server: str, query: RangeQuery, *, limit: int = MOST_BYTES
) -> dict[float, float]:
    """Return the values of a range query by Unix seconds (see `parse_range`).

    Args:
        session: from `http_reading.session`.
        server: base URL of the Prometheus, which the messages of all errors begin with.
        query: its range counts in whole milliseconds, as Prometheus does.
        limit: most bytes of the answer.

    Raises:
        errors.Unavailable: no answer in time, or not an answer of Prometheus.
        errors.Permanent: the query is refused.
    """
    start, end = round(query.start, 3), round(query.end, 3)
    parameters = {
        "query": query.query,
        "start": f"{start:.3f}",
        "end": f"{end:.3f}",
        "step": f"{query.step:g}",
    }
    answer = await _get(
        session, server, "query_range", parameters, seconds=RANGE_TIMEOUT_SECONDS, limit=limit
    )
    try:
        return parse_range(answer, start, end)
    except errors.Permanent as error:
        raise errors.Permanent(error.reason, f"{addresses.without_credentials(server)}: {error}") from error
    except errors.Unavailable as error:
        raise errors.Unavailable(f"{addresses.without_credentials(server)}: {error}") from error


async def _get(
    session: aiohttp.ClientSession,
    server: str,
    path: str,
    parameters: Mapping[str, str],
    *,
    seconds: float,
    limit: int = MOST_BYTES,
) -> Any:
    url, server_shown = f"{server.rstrip('/')}/api/v1/{path}", addresses.without_credentials(server)
    if server_shown == addresses.INVALID:
        raise errors.Unavailable(f"the address of the Prometheus is {server_shown}")
    try:
        page = await http_reading.get(session, url, limit=limit, seconds=seconds, query=parameters)
    except errors.Unavailable as error:
        raise errors.Unavailable(f"{server_shown}: {error}") from error
    try:
        return orjson.loads(page.body)
    except ValueError as error:
        raise errors.Unavailable(f"{server_shown}: status {page.status}, and no JSON") from error


def parse_range(answer: Any, start: float, end: float) -> dict[float, float]:
    """Return the values of a range query's answer by Unix seconds, summed over its series.

    Values that are not finite or below 0, and times outside of `start` to `end`, are left out.

    Raises:
        errors.Unavailable: the answer is an error, or not a range of values.
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
        raise errors.Unavailable(f"the answer is not in Prometheus's form: {error!r}") from error
    return total


def parse_instant(answer: Any) -> float:
    """Return the sum of the values of an instant query's answer.

    Raises:
        errors.Unavailable: the answer is an error, is empty, or is not a finite number of at least 0.
    """
    try:
        if answer["status"] != "success":
            raise errors.Unavailable(f"the query was refused: {answer.get('error', '')}")
        data = answer["data"]
        samples = (
            [data["result"]]
            if data["resultType"] == "scalar"
            else [series["value"] for series in data["result"]]
        )
        values = [float(sample[1]) for sample in samples]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise errors.Unavailable(f"the answer is not in Prometheus's form: {error!r}") from error
    if not values:
        raise errors.Unavailable("the query has no result")
    total = sum(values)
    if not math.isfinite(total) or total < 0:
        raise errors.Unavailable(f"the query's value is {total}")
    return total
