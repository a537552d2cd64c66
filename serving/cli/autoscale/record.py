"""`slipway autoscale record`: records the requests per second of a live predictor as a trace."""

import asyncio
import contextlib
import gzip
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import aiohttp
import typer
from prometheus_client.parser import text_string_to_metric_families

from serving import clock, errors, metrics
from serving.cli.autoscale import lookup
from serving.cli.autoscale.lookup import ScalerName
from serving.cli.autoscale.sources import seconds
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.data_dir import DataDir
from serving.objects import Object
from serving.resources import names
from serving.resources.metric_names import RECEIVED
from serving.system.network import http_reading

if TYPE_CHECKING:
    from serving.kube import Kube

HEADER = "time_s,requests\n"
TIMEOUT_SECONDS = 2.0
"""Time limit for reading a metrics page, which is on this machine or near it."""
MEMBER_SECONDS = 30
"""Rows, one for each second, in one gzip member of a .gz file. A member is written at once, so that a killed
process leaves a valid file."""
SILENT_SECONDS = 5
"""Consecutive readings without an expected page, a second or more apart, after which a warning is printed."""

GONE_SECONDS = 30
"""Seconds without a row after which a page that does not answer no longer holds back the rows of others."""


@dataclass(frozen=True)
class CountedPredictor:
    """A predictor whose requests are counted."""

    namespace: str
    inference: str
    predictor: str

    def has(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels of a sample are of this predictor, in any revision."""
        return (labels.get("namespace"), labels.get("inference"), labels.get("predictor")) == (
            self.namespace,
            self.inference,
            self.predictor,
        )


@dataclass
class Counter:
    """Counts the requests between two readings of several pages, whose counters may start again from 0."""

    _last: dict[tuple[str, str], float] = field(default_factory=dict)
    """The last count by page and revision."""
    _known_pages: set[str] = field(default_factory=set)
    """Pages that were read before."""

    def arrived(self, readings: Mapping[str, Mapping[str, float]]) -> float:
        """Return the requests since the last call.

        Args:
            readings: counts by revision, by the name of each page that answered. Counts of the first reading
                of a page are not arrivals. A new revision of a known page starts at 0, and so does a count
                that has decreased.
        """
        total = 0.0
        for page, counts in readings.items():
            for revision, count in counts.items():
                before = self._last.get((page, revision), 0.0 if page in self._known_pages else count)
                total += count - before if count >= before else count
                self._last[page, revision] = count
            self._known_pages.add(page)
        return total

    def missing(self, readings: Mapping[str, object]) -> frozenset[str]:
        """Return the pages that were read before and have no reading now."""
        return frozenset(self._known_pages - readings.keys())

    def forget(self, pages: AbstractSet[str]) -> None:
        """Forget pages: if one of them is read again, it is a new page."""
        self._known_pages -= pages
        self._last = {key: count for key, count in self._last.items() if key[0] not in pages}


class Trace:
    """A new trace file, appended in complete rows, so that it is valid whenever the process is killed."""

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            errors.UserError: it exists, has another suffix, or cannot be written.
        """
        if not path.name.endswith((".csv", ".csv.gz")):
            raise errors.UserError(f"--out {path} must end in .csv or .csv.gz")
        self._is_gzip = path.name.endswith(".gz")
        self._seconds = 0
        self._unwritten = [HEADER]
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except FileExistsError:
            raise errors.UserError(f"{path} exists: a recording does not overwrite files") from None
        except OSError as error:
            raise errors.UserError(f"cannot write {path}: {error.strerror}") from error
        self.flush()

    def add(self, first: int, count: int, arrivals: float) -> None:
        """Add `count` seconds from the Unix second `first` on, with `arrivals` requests in total."""
        self._unwritten += [f"{first + i},{arrivals / count:g}\n" for i in range(count)]
        self._seconds += count
        if not self._is_gzip or len(self._unwritten) >= MEMBER_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that are not written yet."""
        if self._unwritten:
            rows = "".join(self._unwritten).encode()
            data = gzip.compress(rows, mtime=0) if self._is_gzip else rows
            while data:
                data = data[os.write(self._file, data) :]
            self._unwritten.clear()

    def close(self) -> int:
        """Write the remaining rows and close the file; return the recorded seconds."""
        self.flush()
        os.close(self._file)
        return self._seconds


@with_target
def record(
    target: Target,
    name: ScalerName,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="A new .csv or .csv.gz file, which `simulate --trace` reads."
        ),
    ],
    duration: Annotated[
        str, typer.Option("--duration", metavar="30s|10m|2h", help="[default: until Ctrl-C]")
    ] = "",
    pages: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="URL",
            help="Page of a gateway's metrics; may be repeated.  "
            "[default: those of the `up` on this machine]",
        ),
    ] = None,
) -> None:
    """Record what arrives at a predictor, second by second."""
    limit = seconds(duration, "--duration") if duration else math.inf
    data_dir = DataDir(target.kubeconfig.parent)

    def page_urls() -> dict[str, str]:
        """Return URLs by the name of the page; the components of `up` may get other ports while it runs."""
        if pages:
            return {url: url for url in pages}
        return {page.component: page.url for page in metrics.pages(data_dir.pages)}

    async def work(kube: "Kube") -> None:
        scaler, *_ = await lookup.read(kube, target.namespace, name)
        predictor = _predictor(scaler, target.namespace)
        if not page_urls():
            raise errors.UserError(
                f"no component has a page of metrics below {data_dir.pages}; "
                "name the gateways' with --metrics URL"
            )
        await _record(predictor, page_urls, out, limit)

    with_kube(target.kubeconfig, work)


def _predictor(scaler: Object, namespace: str) -> CountedPredictor:
    labels = scaler["metadata"].get("labels") or {}
    inference, predictor = labels.get(names.INFERENCE_LABEL), labels.get(names.PREDICTOR_LABEL)
    if not inference or not predictor:
        raise errors.UserError(
            f"{scaler['metadata']['name']} sizes no predictor of an Inference: "
            "gateways do not count its requests"
        )
    return CountedPredictor(namespace, inference, predictor)


async def _record(
    predictor: CountedPredictor, page_urls: Callable[[], dict[str, str]], out: Path, limit: float
) -> None:
    """Write the trace file `out`, until `limit` seconds have passed, Ctrl-C or SIGTERM."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stopped.set)
    async with http_reading.session() as session:
        counter = Counter()
        first = await _read(session, page_urls(), predictor)
        if not first:
            raise errors.UserError("no page of metrics answers as a gateway's: is `slipway up` running?")
        trace = Trace(out)
        print(f"recording {predictor.inference}/{predictor.predictor}; Ctrl-C ends it", file=sys.stderr)
        try:
            counter.arrived(first)
            arrived = await _add_rows(session, page_urls, predictor, counter, trace, stopped, limit)
        finally:
            recorded = trace.close()
    print(f"wrote {out}: {recorded} s, {arrived:.0f} requests")


async def _add_rows(
    session: aiohttp.ClientSession,
    page_urls: Callable[[], dict[str, str]],
    predictor: CountedPredictor,
    counter: Counter,
    trace: Trace,
    stopped: asyncio.Event,
    limit: float,
) -> float:
    """Read the pages once a second and add rows to the trace; return the recorded requests.

    A reading that is late or lacks a gateway's page leaves no gap: the next one spreads its requests over the
    seconds since. A gateway that does not answer for `GONE_SECONDS` is ignored, if another one answers.

    Args:
        session: reads the pages.
        page_urls: returns the URLs of the pages, by name.
        predictor: the predictor whose requests are recorded.
        counter: has taken a first reading.
        trace: gets the rows.
        stopped: ends the recording.
        limit: seconds after which the recording ends; rows are whole seconds, so a part of one counts as one.
    """
    begun = clock.monotonic()
    start = math.floor(clock.now().timestamp())
    recorded, silent, total = 0, 0, 0.0
    while not stopped.is_set() and recorded < limit:
        wait = begun + recorded + 1 - clock.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), max(wait, 0.0))
        # Whole seconds without a row; a wait may end a moment early.
        passed = math.floor(clock.monotonic() - begun + 1e-3) - recorded
        if passed < 1:
            continue
        readings = await _read(session, page_urls(), predictor)
        missing = counter.missing(readings)
        if not readings or (missing and passed < GONE_SECONDS):
            silent += 1
            if silent == SILENT_SECONDS:
                print("a gateway's page of metrics does not answer any more; still trying", file=sys.stderr)
            # Without a new row the next reading is due at once.
            await asyncio.sleep(min(1.0, TIMEOUT_SECONDS))
            continue
        silent = 0
        counter.forget(missing)
        count = math.ceil(min(passed, limit - recorded))
        arrived = counter.arrived(readings) * count / passed
        trace.add(start + recorded, count, arrived)
        recorded += count
        total += arrived
    return total


async def _read(
    session: aiohttp.ClientSession, page_urls: Mapping[str, str], predictor: CountedPredictor
) -> dict[str, dict[str, float]]:
    """Return the counts by revision, by the name of each gateway's page that answers."""

    async def read(url: str) -> dict[str, float] | None:
        try:
            page = await http_reading.get(session, url, limit=metrics.MAX_BYTES, seconds=TIMEOUT_SECONDS)
            return counts(page.text, predictor) if page.status == 200 else None
        except (errors.Unavailable, ValueError):
            return None

    answers = await asyncio.gather(*map(read, page_urls.values()))
    return {name: answer for name, answer in zip(page_urls, answers, strict=True) if answer is not None}


def counts(page: str, predictor: CountedPredictor) -> dict[str, float] | None:
    """Return the requests that a predictor has received, by the labels of a sample: one for each revision.

    None if the page lacks the metric, which a gateway's page has without requests too.

    Raises:
        ValueError: the page is not in Prometheus's text format.
    """
    lines = "\n".join(line for line in page.splitlines() if line.startswith((RECEIVED, f"# TYPE {RECEIVED}")))
    if not lines:
        return None
    return {
        ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for metric in text_string_to_metric_families(lines + "\n")
        for sample in metric.samples
        if sample.name == RECEIVED and predictor.has(sample.labels)
    }
