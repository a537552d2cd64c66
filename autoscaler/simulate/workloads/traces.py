"""Parses recorded load, a CSV table. Its columns decide the form: single requests, counts or rates of bins of
equal length, or rates of clients. Pure.
"""

import csv
import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.simulate.workloads.load import Floats

SECONDS = (
    "t_s",
    "time_s",
    "t",
    "time",
    "timestamp",
    "ts",
    "timestamp_s",
    "datetime",
    "date",
    "arrival_time",
    "arrival_s",
    "arrival",
    "arrived_at",
    "start_time",
    "start_s",
    "request_time",
    "window_start_s",
    "window_start",
    "bin_start_s",
    "second",
    "seconds",
)
MILLISECONDS = ("t_ms", "timestamp_ms", "time_ms", "arrival_ms")
TIMES: Mapping[str, float] = (
    dict.fromkeys(SECONDS, 1.0)
    | dict.fromkeys(MILLISECONDS, 1e-3)
    | {"minute": 60.0, "minutes": 60.0, "hour": 3600.0}
)
"""Names of the column of times, and the seconds of its unit; all are ISO times if the first is no number."""
COUNTS = (
    "requests",
    "count",
    "counts",
    "value",
    "n",
    "num_requests",
    "request_count",
    "requests_total",
    "invocations",
    "arrivals",
)
RATES = ("rate_rps", "rps", "rate", "qps", "requests_per_second", "request_rate")
CLIENTS = ("client", "client_id", "tenant", "service", "function")
INPUTS = (
    "input_tokens",
    "prompt_tokens",
    "context_tokens",
    "contexttokens",
    "input_length",
    "num_input_tokens",
)
OUTPUTS = (
    "output_tokens",
    "generated_tokens",
    "generatedtokens",
    "completion_tokens",
    "output_length",
    "num_output_tokens",
)
EXECUTIONS = ("exec_time_s", "execution_time_s", "gpu_seconds", "service_time_s", "duration_s")

DAY, HOUR = 86_400.0, 3_600.0
"""Seconds of a day and of an hour."""
FIRST_DAY = dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()
"""Unix seconds of a Monday's midnight, at which traces that count from 0 begin."""
MOST_RELATIVE_SECONDS = 366 * 86_400
"""If the lowest number is above it, all are Unix times; else all count from the start of the trace."""
MOST_UNIX_SECONDS = 1e11
"""Larger Unix times are in milliseconds, microseconds or nanoseconds, also in a column of seconds: in seconds
it is the year 5138."""
MOST_LOST_SHARE = 0.2
"""At most this share of absent bins is lost data, to be interpolated. With more of them, the recording omits
bins without requests."""
MOST_BINS = 10_000_000
"""Most bins of a trace, of which each array takes 80 MB: a year of bins of 4 s."""


class UnreadableTrace(ValueError):
    """Raised for an invalid trace, with the file and the column or row."""


@dataclass(frozen=True, slots=True)
class Law:
    """The distribution of a client's arrivals in one window."""

    start: float
    """Seconds from the start of the trace."""
    seconds: float
    """Length of the window."""
    rate: float
    """Requests per second."""
    family: str
    """Distribution of the times between arrivals: G gamma, W Weibull."""
    shape: float
    """Shape parameter of the distribution."""


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """Single requests, in order of arrival."""

    name: str
    start: float
    """Unix seconds of the first request."""
    times: Floats
    """Arrival of each request, in seconds from `start`."""
    inputs: Floats | None = None
    """Input tokens of each request."""
    outputs: Floats | None = None
    """Output tokens of each request."""
    execution: Floats | None = None
    """GPU seconds of each request."""

    @property
    def seconds(self) -> float:
        return float(self.times[-1]) if len(self.times) else 0.0


@dataclass(frozen=True, slots=True)
class BinTrace:
    """Rates of bins of equal length."""

    name: str
    start: float
    """Unix seconds of the first bin's start."""
    step: float
    """Length of a bin, in seconds."""
    rates: Floats
    """Requests per second."""

    @property
    def seconds(self) -> float:
        return self.step * len(self.rates)


@dataclass(frozen=True, slots=True)
class ClientTrace:
    """The windows of each client; in an absent window the client sent no requests."""

    name: str
    start: float
    """Unix seconds."""
    seconds: float
    """Length of the trace, up to the end of the last window."""
    clients: Mapping[str, tuple[Law, ...]]
    """By name of the client, its windows in order of time."""


Trace = RequestTrace | BinTrace | ClientTrace


def parse(name: str, text: str) -> Trace:
    """Return the trace of a table with a header.

    A table with clients and rates is a `ClientTrace`; one with rates or counts is a `BinTrace`, unless it has
    input tokens or execution times beside the counts. Any other is a `RequestTrace`.

    Args:
        name: of the file, for errors only.
        text: comma-separated values.

    Raises:
        UnreadableTrace: a column is missing, or a value is invalid.
    """
    table = _Table.of(name, text)
    client = table.column(CLIENTS)
    rate = table.column(RATES)
    if client is not None and rate is not None:
        return _clients(table, client, rate)
    if rate is not None:
        return _bins(table, rate, counts=False)
    count = table.column(COUNTS)
    if count is not None and table.column(INPUTS) is None and table.column(EXECUTIONS) is None:
        return _bins(table, count, counts=True)
    return _requests(table)


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    lines: Sequence[int]
    """Number of each row's line in the file, from 1."""

    @classmethod
    def of(cls, name: str, text: str) -> "_Table":
        reader = csv.reader(text.lstrip("\ufeff").splitlines())
        try:
            header = next(reader, None)
            numbered = [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:  # after a quotation mark that is not closed, the rest is one long value
            raise UnreadableTrace(f"{name}: row {reader.line_num}: {error}") from error
        if not header:
            raise UnreadableTrace(f"{name}: the file is empty")
        rows: list[list[str]] = []
        lines: list[int] = []
        for line, row in numbered:
            if len(row) != len(header):
                raise UnreadableTrace(f"{name}: row {line} has {len(row)} values for {len(header)} columns")
            rows.append(row)
            lines.append(line)
        if not rows:
            raise UnreadableTrace(f"{name}: there are no rows below the header")
        return cls(name, tuple(column.strip().lower() for column in header), rows, lines)

    def column(self, names: Sequence[str]) -> int | None:
        """Return the position of the first existing column of `names`."""
        return next((self.columns.index(name) for name in names if name in self.columns), None)

    def texts(self, column: int) -> list[str]:
        return [row[column] for row in self.rows]

    def numbers(self, column: int) -> Floats:
        """Return a column of finite numbers of at least 0."""
        texts = self.texts(column)
        try:
            values = np.array(texts, dtype=np.float64)
        except ValueError:
            values = np.array(
                [self._number(text, column, line) for line, text in zip(self.lines, texts, strict=True)]
            )
        bad = np.flatnonzero(~np.isfinite(values) | (values < 0))
        if len(bad):
            row = int(bad[0])
            raise UnreadableTrace(
                f"{self.name}: row {self.lines[row]}, column {self.columns[column]}: {texts[row]!r} "
                "is no count, rate or size"
            )
        return values

    def times(self) -> tuple[float, Floats]:
        """Return the Unix seconds of the trace's start, and the time of each row in seconds from there."""
        column = self.column(tuple(TIMES))
        if column is None:
            raise UnreadableTrace(
                f"{self.name}: no column says when; there are {', '.join(self.columns)}; "
                f"known are {', '.join(TIMES)}"
            )
        texts = self.texts(column)
        if _is_iso_time(texts[0]):
            moments = np.array(
                [self._moment(text, column, line) for line, text in zip(self.lines, texts, strict=True)]
            )
            start = float(moments.min())
            return start, moments - start
        with np.errstate(over="ignore"):  # infinity is refused
            values = self.numbers(column) * TIMES[self.columns[column]]
        if not np.isfinite(values).all():
            raise UnreadableTrace(f"{self.name}: column {self.columns[column]}: a time is too large")
        for _ in ("milliseconds", "microseconds", "nanoseconds"):
            if values.min() > MOST_UNIX_SECONDS:
                values = values / 1000
        if values.max() > MOST_UNIX_SECONDS:
            row = int(values.argmax())
            raise UnreadableTrace(
                f"{self.name}: row {self.lines[row]}, column {self.columns[column]}: {texts[row]!r} "
                "is a time after the year 5000"
            )
        if values.min() > MOST_RELATIVE_SECONDS:
            return float(values.min()), values - values.min()
        return FIRST_DAY, values

    def _moment(self, text: str, column: int, line: int) -> float:
        try:
            moment = dt.datetime.fromisoformat(text.strip().replace("/", "-"))
        except ValueError:
            raise UnreadableTrace(
                f"{self.name}: row {line}, column {self.columns[column]}: {text!r} is no ISO time"
            ) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()

    def _number(self, text: str, column: int, line: int) -> float:
        try:
            return float(text)
        except ValueError:
            raise UnreadableTrace(
                f"{self.name}: row {line}, column {self.columns[column]}: {text!r} is no number"
            ) from None


def _is_iso_time(text: str) -> bool:
    """Whether a time is an ISO date and time, not a number such as `5e-01`."""
    try:
        float(text)
    except ValueError:
        return any(mark in text for mark in ":-/")
    return False


def _requests(table: _Table) -> RequestTrace:
    start, times = table.times()
    order = np.argsort(times, kind="stable")

    def sizes(names: Sequence[str]) -> Floats | None:
        column = table.column(names)
        return None if column is None else table.numbers(column)[order]

    offset = float(times.min())
    return RequestTrace(
        table.name, start + offset, times[order] - offset, sizes(INPUTS), sizes(OUTPUTS), sizes(EXECUTIONS)
    )


def _bins(table: _Table, column: int, *, counts: bool) -> BinTrace:
    start, times = table.times()
    values = table.numbers(column)
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    step = _step(table.name, times)
    bins = round(float(times[-1] - times[0]) / step) + 1
    if bins > MOST_BINS:
        raise UnreadableTrace(
            f"{table.name}: a bin lasts {step:g} s and there are {bins}; at most {MOST_BINS}"
        )
    bin_of_row = np.round((times - times[0]) / step).astype(np.int64)
    rows_of_bin = np.bincount(bin_of_row, minlength=bins)
    by_bin: Floats = np.bincount(bin_of_row, weights=values, minlength=bins).astype(np.float64)
    if not counts:  # of several rows in one bin, counts add up and rates are averaged
        by_bin /= np.maximum(rows_of_bin, 1)
    absent = rows_of_bin == 0
    if 0 < absent.sum() <= MOST_LOST_SHARE * bins:
        by_bin[absent] = np.interp(np.flatnonzero(absent), np.flatnonzero(~absent), by_bin[~absent])
    return BinTrace(table.name, start + float(times[0]), step, by_bin / step if counts else by_bin)


def _step(name: str, times: Floats) -> float:
    """Return the length of a bin in seconds: the most common difference between ascending `times`, as bins
    without requests may be absent.
    """
    differences = np.round(np.diff(times), 3)
    lengths, counts = np.unique(differences[differences > 0], return_counts=True)
    if not len(lengths):
        raise UnreadableTrace(f"{name}: all rows are of the same moment; a trace needs two bins at least")
    return float(lengths[counts.argmax()])


def _clients(table: _Table, client: int, rate: int) -> ClientTrace:
    start, times = table.times()
    rates = table.numbers(rate)
    names = table.texts(client)
    family, shape = table.column(("iat_dist",)), table.column(("iat_shape",))
    families = (
        ["G"] * len(names)
        if family is None
        else [text.strip().upper()[:1] or "G" for text in table.texts(family)]
    )
    shapes = np.ones(len(names)) if shape is None else table.numbers(shape)
    window_seconds = _step(table.name, np.unique(times))
    laws: dict[str, list[Law]] = {}
    for row in np.argsort(times, kind="stable").tolist():
        if families[row] not in {"G", "W"} or shapes[row] <= 0:
            raise UnreadableTrace(
                f"{table.name}: row {table.lines[row]}: iat_dist {families[row]!r} with iat_shape"
                f" {shapes[row]:g}; known are G (gamma) and W (Weibull), with a shape above 0"
            )
        law = Law(float(times[row]), window_seconds, float(rates[row]), families[row], float(shapes[row]))
        laws.setdefault(names[row], []).append(law)
    clients = {name: tuple(own) for name, own in laws.items()}
    return ClientTrace(table.name, start, float(times.max()) + window_seconds, clients)


def mean_rates(trace: ClientTrace) -> Iterator[tuple[str, float]]:
    """Yield each client with its mean requests per second over the whole trace."""
    for client, laws in trace.clients.items():
        yield client, sum(law.rate * law.seconds for law in laws) / trace.seconds
