"""Compares our scaling policy with others on recorded load, for `slipway autoscale simulate`."""

import math
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autoscaler.report import content, page, plots, schema, sentences
from autoscaler.simulate import comparison
from autoscaler.simulate.comparison import OURS, Contender, Outcome
from autoscaler.simulate.oracle import Oracle
from autoscaler.simulate.startup import Startup
from autoscaler.simulate.workloads.service import Service, ServiceOptions, service
from autoscaler.simulate.workloads.traces import UnreadableTrace
from serving import clock, errors
from serving.cli.autoscale import sources
from serving.cli.autoscale.sources import LoadSource
from serving.cli.output import files, tables

ALL = "all"
"""The value of --policy for every baseline."""
_DATA_SUFFIX = ".json"
"""Suffix of the file beside a page that has its data."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables with the number of threads of numpy's libraries."""


def service_options(
    min_replicas: int,
    max_replicas: int | None,
    capacity: float | None,
    concurrency: int | None,
    days: float | None,
    history: float | None,
    client: str,
) -> ServiceOptions:
    """Return the options of the simulated service.

    Raises:
        errors.UserError: a value is out of range.
    """
    if max_replicas is not None and max_replicas < min_replicas:
        raise errors.UserError(f"--max {max_replicas} is below --min {min_replicas}")
    for option, value in (("--capacity", capacity), ("--days", days)):
        if value is not None and not 0 < value < math.inf:
            raise errors.UserError(f"{option} {value:g} must be a finite number above 0")
    if history is not None and not 0 <= history < math.inf:
        raise errors.UserError(f"--history {history:g} must be a finite number of at least 0")
    return ServiceOptions(min_replicas, max_replicas, capacity, concurrency, days, history, client)


def run(
    source: LoadSource,
    options: ServiceOptions,
    *,
    policies: Sequence[str],
    risk: float | None,
    startup: str,
    seed: int,
    output: str | None,
    out: Path | None,
    jobs: int | None,
) -> None:
    """Print the comparison, or write it to files.

    Args:
        source: the recorded load.
        options: the simulated service.
        policies: names of the compared policies; empty: the defaults.
        risk: risk of our policy in percent; None: its default.
        startup: seconds of a start, or `fleet`.
        seed: seed of all random values.
        output: `text`, `html` or `json`; None: by the suffix of `out`, else `text`.
        out: the file to write; None: standard output, or TRACE.html for a page.
        jobs: number of processes; None: one for each core.

    Raises:
        errors.UserError: an unknown policy, a trace that cannot be parsed, a page in the file of its data, a
            file that cannot be written.
    """
    form = output or (files.form(out) if out else "text")
    if form == "html" and out is not None and out.suffix == _DATA_SUFFIX:
        raise errors.UserError(
            f"--out {out} must not end in {_DATA_SUFFIX} with -o html, which writes its data to that file"
        )
    contenders = chosen(policies, risk)
    law = _law(startup)
    load = sources.read(source)
    try:
        simulated = service(source.name, load, options, seed)
    except UnreadableTrace as error:
        raise errors.UserError(str(error)) from error
    console = Console(stderr=True)
    with console.status("the optimum with perfect knowledge"):
        oracle, limit = comparison.yardstick(simulated.workload, law, simulated.max_replicas)
    outcomes = _play_all(_Inputs(simulated, startup, oracle, limit, seed), contenders, jobs, console)
    report = content.of(
        simulated,
        outcomes,
        oracle=oracle,
        startup=startup,
        limit=limit,
        seed=seed,
        now=clock.now(),
        version=f"slipway {metadata.version('slipway')}",
    )
    _write(report, form, out or (Path(f"{source.name}.html") if form == "html" else None))


def chosen(policies: Sequence[str], risk: float | None) -> list[Contender]:
    """Return the policies to run: ours, by default and with `all` also at other risks, then the others.

    Raises:
        errors.UserError: there is no such policy, and the message lists all policies; or the risk is NaN.
    """
    if risk is not None and math.isnan(risk):  # which passes the bounds of the option
        raise errors.UserError(f"--risk {risk:g} must be a number")
    policy_names = comparison.names()
    if unknown := [name for name in policies if name not in (*policy_names, ALL)]:
        raise errors.UserError(
            f"there is no policy {', '.join(unknown)}; there are {', '.join(policy_names)}, {ALL}"
        )
    selected = comparison.DEFAULT if not policies else policy_names if ALL in policies else policies
    contenders = [Contender(OURS, risk)]
    if not policies or ALL in policies:
        contenders += [Contender(OURS, other_risk) for other_risk in comparison.RISKS if other_risk != risk]
    return [*contenders, *(Contender(name) for name in dict.fromkeys(selected) if name != OURS)]


def text(report: schema.SimulationReport) -> str:
    """Return the report as text: the headline, the table of the policies, the service and its assumptions."""
    words = sentences.of(report)
    rows = [[cell for cell, _ in plots.cells(row)] for row in report.rows]
    parts = [
        "\n".join([*words["headline"], *words["compared"]]),
        tables.text(plots.COLUMNS, rows),
        "\n".join([*words["service"], *words["assumed"]]),
    ]
    # The no-break spaces of figures are for HTML pages.
    return "\n\n".join(parts).replace("\u00a0", " ") + "\n"


def _law(startup: str) -> Startup:
    """Return the law of start-up times that --startup names."""
    try:
        return comparison.startup_of(startup)
    except ValueError as error:
        raise errors.UserError(
            f"--startup {startup!r} is neither seconds nor `{comparison.FLEET}`"
        ) from error


def _write(report: schema.SimulationReport, form: str, out: Path | None) -> None:
    """Write the report in its form; a page gets a JSON file beside it."""
    data = orjson.dumps(schema.as_json(report), option=orjson.OPT_INDENT_2).decode() + "\n"
    if form == "html" and out is not None:
        files.write(out, page.render(report))
        files.write(out.with_suffix(_DATA_SUFFIX), data)
    else:
        files.put(out, data if form == "json" else text(report))


class _Inputs(NamedTuple):
    """The inputs that all runs share."""

    simulated: Service
    startup: str
    """Name of the law of start-up times, as a law holds functions, which cannot be pickled."""
    oracle: Oracle
    limit: int
    """Most replicas."""
    seed: int


def _play_all(
    inputs: _Inputs, contenders: Sequence[Contender], jobs: int | None, console: Console
) -> list[Outcome]:
    """Run the contenders in at most `jobs` processes, in order: ours, whose runs take longest, come first."""
    for name in _THREADS:
        os.environ.setdefault(name, "1")  # small arrays; the other cores have runs of their own
    workers = min(jobs or len(os.sched_getaffinity(0)), len(contenders))
    spawn = get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_prepare, initargs=(inputs,))
    try:
        waiting = [pool.submit(_play, contender) for contender in contenders]
        _wait(waiting, console)
    except BrokenProcessPool as error:
        raise errors.UserError(
            "a process of the simulation was killed: is there memory for --jobs?"
        ) from error
    finally:  # after Ctrl+C no other run begins
        pool.shutdown(wait=False, cancel_futures=True)
    return [future.result() for future in waiting]


def _wait(waiting: "Sequence[Future[Outcome]]", console: Console) -> None:
    """Wait for all runs and print progress to standard error."""
    bar = Progress(
        TextColumn("policies"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=len(waiting))
        for finished in as_completed(waiting):
            outcome = finished.result()
            bar.update(task, advance=1, description=f"{outcome.name} is done")
            if not console.is_terminal:
                console.print(f"{outcome.name}: {outcome.scores.violations:.3g} % late", highlight=False)


_inputs: list[_Inputs] = []
"""The inputs of this worker process; sent to it once, as a load may be large."""


def _prepare(inputs: _Inputs) -> None:
    _inputs.append(inputs)


def _play(contender: Contender) -> Outcome:
    simulated, startup, oracle, limit, seed = _inputs[0]
    law = comparison.startup_of(startup)
    return comparison.play(simulated.workload, law, contender, oracle=oracle, limit=limit, seed=seed)
