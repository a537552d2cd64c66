"""Reads the load of `slipway autoscale simulate` from a file or from a Prometheus."""

import base64
import datetime as dt
import gzip
import http.client
import math
import re
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from autoscaler.simulate.workloads import traces
from autoscaler.simulate.workloads.traces import BinTrace, Trace
from serving import clock, errors
from serving.system.network import addresses

TIMEOUT_SECONDS = 30.0
"""Time limit of one query; Prometheus itself stops a query after 120 s."""
MAX_POINTS = 10_000
"""Most values of a series in one query: Prometheus refuses more than 11,000."""
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
    for begin in range(0, len(rates), MAX_POINTS):
        count = min(MAX_POINTS, len(rates) - begin)
        series = _query(source, first + begin * step, first + (begin + count - 1) * step, step)
        _add(rates, series, first, step)
    indices = np.flatnonzero(~np.isnan(rates))
    if not len(indices):
        raise errors.UserError(f"the query has no values from {source.start} to {source.end}: {source.query}")
    rates = rates[indices[0] : indices[-1] + 1]
    start = first + float(indices[0]) * step
    return BinTrace("the query", start, step, np.nan_to_num(np.maximum(rates, 0.0)))


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


def _add(rates: Any, series: Sequence[Mapping[str, Any]], first: float, step: float) -> None:
    """Add the values of the series to `rates`, which has one element for each step from `first` on.

    An element without a value is NaN.
    """
    for entry in series:
        for moment, value in entry.get("values") or []:
            at, number = round((float(moment) - first) / step), float(value)
            if 0 <= at < len(rates) and math.isfinite(number):
                rates[at] = number if np.isnan(rates[at]) else rates[at] + number


def _query(source: LoadSource, first: float, last: float, step: float) -> Sequence[Mapping[str, Any]]:
    """Return the series of a range query; `first` and `last` are Unix seconds, both inclusive."""
    shown = addresses.without_credentials(source.prometheus)
    if not shown.startswith(("http://", "https://")):
        raise errors.UserError(f"--prometheus {shown!r} is not a URL such as http://prometheus.example:9090")
    parameters = {"query": source.query, "start": f"{first:.3f}", "end": f"{last:.3f}", "step": f"{step:g}"}
    url = f"{shown.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
    request = urllib.request.Request(url)  # noqa: S310 - checked above
    if shown != source.prometheus:
        # urllib takes credentials of a URL for a part of the host; a redirect must not get them.
        request.add_unredirected_header("Authorization", _basic(source.prometheus))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - as above
            body = orjson.loads(response.read())
    except urllib.error.HTTPError as error:
        raise errors.UserError(f"{shown} refuses the query: {_refusal(error)}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise errors.UserError(f"{shown} does not answer as a Prometheus: {error}") from error
    body = body if isinstance(body, dict) else {}
    data = body.get("data")
    data = data if isinstance(data, dict) else {}
    if body.get("status") != "success" or data.get("resultType") != "matrix":
        raise errors.UserError(f"{shown}: {body.get('error') or 'the response is not a range of values'}")
    result: Sequence[Mapping[str, Any]] = data.get("result") or []
    return result


def _basic(url: str) -> str:
    """Return the header of HTTP's Basic scheme for the credentials of a URL."""
    parts = urllib.parse.urlsplit(url)
    login = f"{urllib.parse.unquote(parts.username or '')}:{urllib.parse.unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _refusal(error: urllib.error.HTTPError) -> str:
    """Return the message of Prometheus's response, else its status."""
    try:
        with error:
            return str(orjson.loads(error.read())["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError, OSError):
        return f"{error.code} {error.reason}"
