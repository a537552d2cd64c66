"""Reads the load of `slipway autoscale simulate` from a file or from a Prometheus."""

import asyncio
import datetime as dt
import gzip
import math
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoscaler.simulate.workloads import traces
from autoscaler.simulate.workloads.traces import BinTrace, Trace
from serving import clock, errors
from serving.system.network import addresses

MAX_POINTS = 10_000
"""Most values of a series in one query: Prometheus refuses more than 11,000."""
MAX_BYTES = 64 * 1024 * 1024
"""Longest answer of one query: `MAX_POINTS` values of a hundred series are 40 MB."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True)
class LoadSource:
    """A file, or a query and its range."""

    trace: Path | None
    prometheus: str = ""
    query: str = ""
    start: str = "2d"
    end: str = "0s"
    step: str = "1m"

    @property
    def name(self) -> str:
        """The source in reports and in the default name of a page."""
        return self.trace.name.split(".")[0] if self.trace is not None else "prometheus"


def read(source: LoadSource) -> Trace:
    """Return the recorded load.

    Raises:
        errors.UserError: no source is given, the file cannot be read or parsed (the message has column and
            row), or the Prometheus does not answer.
    """
    if (source.trace is None) == (not source.prometheus):
        raise errors.UserError("say where the load is: --trace FILE, or --prometheus URL with --query PROMQL")
    try:
        if source.trace is not None:
            return traces.parse(str(source.trace), text(source.trace))
        return _range(source)
    except traces.UnreadableTrace as error:
        raise errors.UserError(str(error)) from error


def text(path: Path) -> str:
    """Return the content of a file, decompressed if its name ends in .gz.

    Raises:
        errors.UserError: it cannot be read.
    """
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.name.endswith(".gz") else raw).decode()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise errors.UserError(f"cannot read {path}: {reason}") from error
    except UnicodeDecodeError as error:
        raise errors.UserError(
            f"{path} is not UTF-8 text; the name of a gzip file must end in .gz"
        ) from error


def seconds(words: str, option: str) -> float:
    """Return the seconds of `30s`, `10m`, `2h`, `1d`, `1w` or a plain number.

    Raises:
        errors.UserError: the text has another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", words.strip())
    if match is None:
        raise errors.UserError(f"{option} {words!r} is not a duration such as 30s, 10m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _range(source: LoadSource) -> BinTrace:
    """Return the load of a Prometheus, without the steps before its first and after its last value; missing
    values in between are 0.
    """
    if not source.query:
        raise errors.UserError("--prometheus needs --query: what arrives, in requests per second")
    now = clock.now().timestamp()
    step = seconds(source.step, "--step")
    first, last = _moment(source.start, "--start", now), _moment(source.end, "--end", now)
    if step <= 0 or last - first < 2 * step:
        raise errors.UserError(f"from --start to --end must be at least two steps of {source.step}")
    first = math.ceil(first / step) * step
    rates = np.full(math.floor((last - first) / step) + 1, np.nan)
    for moment, rate in _values(source, first, step, len(rates)).items():
        rates[round((moment - first) / step)] = rate
    indices = np.flatnonzero(~np.isnan(rates))
    if not len(indices):
        raise errors.UserError(f"the query has no values from {source.start} to {source.end}: {source.query}")
    rates = rates[indices[0] : indices[-1] + 1]
    start = first + float(indices[0]) * step
    return BinTrace("the query", start, step, np.nan_to_num(rates))


def _moment(words: str, option: str, now: float) -> float:
    """Return the Unix seconds of an RFC 3339 time, nine or more digits of Unix seconds, or a duration ago."""
    if re.fullmatch(r"\d{9,}(\.\d+)?", words):
        return float(words)
    if re.match(r"\d{4}-", words):
        try:
            moment = dt.datetime.fromisoformat(words)
        except ValueError as error:
            raise errors.UserError(f"{option} {words!r} is not an RFC 3339 time: {error}") from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
    return now - seconds(words, option)


def _values(source: LoadSource, first: float, step: float, count: int) -> dict[float, float]:
    """Return the values of `count` steps from `first` on, by Unix seconds."""
    from yarl import URL

    from autoscaler.signals import prometheus
    from serving.system.network import http_reading, proxies

    shown = addresses.without_credentials(source.prometheus)
    try:
        url = URL(shown)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"}:
        raise errors.UserError(f"--prometheus {shown!r} is not a URL such as http://prometheus.example:9090")

    async def read_parts() -> dict[float, float]:
        values: dict[float, float] = {}
        async with http_reading.session(proxy=proxies.proxy_of(url)) as session:
            for begin in range(0, count, MAX_POINTS):
                last = min(begin + MAX_POINTS, count) - 1
                part = prometheus.RangeQuery(source.query, first + begin * step, first + last * step, step)
                values |= await prometheus.query_range(session, source.prometheus, part, limit=MAX_BYTES)
        return values

    try:
        return asyncio.run(read_parts())
    except errors.Permanent as error:
        raise errors.UserError(f"--query {source.query!r}: {error}") from error
    except errors.Unavailable as error:
        raise errors.UserError(f"--prometheus {error}") from error
