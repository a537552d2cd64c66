"""Compares our scaling policy with others on recorded load, for `slipway autoscale simulate`."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autoscaler.report import content, page, plots, schema, sentences
from autoscaler.simulate import comparison
from autoscaler.simulate.comparison import OURS, Contender, Outcome
from autoscaler.simulate.oracle import Oracle
from autoscaler.simulate.startup import Startup
from autoscaler.simulate.workloads.service import Service, ServiceOptions, service
from autoscaler.simulate.workloads.traces import Unreadable
from serving import clock, errors
from serving.cli.autoscale import sources
from serving.cli.autoscale.sources import LoadSource
from serving.cli.output import files, tables

ALL = "all"
"""The value of --policy for every baseline."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


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
        if value is not None and value <= 0:
            raise errors.UserError(f"{option} {value:g} must be above 0")
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

    Raises:
        errors.UserError: an unknown policy, a trace that cannot be parsed, a file that cannot be written.
    """
    form = output or (files.form(out) if out else "text")
    contenders = chosen(policies, risk)
    _law(startup)
    load = sources.read(source)
    try:
        simulated = service(source.name, load, options, seed)
    except Unreadable as error:
        raise errors.UserError(str(error)) from error
    console = Console(stderr=True)
    with console.status("the optimum with perfect knowledge"):
        oracle, limit = comparison.yardstick(simulated.workload, _law(startup), simulated.max_replicas)
    outcomes = _play_all(simulated, contenders, startup, oracle, limit, seed, jobs, console)
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
    """Return the policies to run: ours, ours at a lower and a higher risk, then the others.

    Raises:
        errors.UserError: there is no such policy; the message lists all policies.
    """
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
    """Return the report for a terminal."""
    words = sentences.of(report)
    rows = [[cell for cell, _ in plots.cells(row)] for row in report.rows]
    parts = [
        "\n".join([*words["headline"], *words["compared"]]),
        tables.text(plots.COLUMNS, rows),
        "\n".join([*words["service"], *words["assumed"]]),
    ]
    return "\n\n".join(parts).replace("\u00a0", " ") + "\n"


def _law(startup: str) -> Startup:
    try:
        return comparison.startup_of(startup)
    except ValueError as error:
        raise errors.UserError(
            f"--startup {startup!r} is neither seconds nor `{comparison.FLEET}`"
        ) from error


def _write(report: schema.SimulationReport, form: str, out: Path | None) -> None:
    data = orjson.dumps(schema.as_json(report), option=orjson.OPT_INDENT_2).decode() + "\n"
    if form == "html" and out is not None:
        files.write(out, page.render(report))
        files.write(out.with_suffix(".json"), data)
    else:
        files.put(out, data if form == "json" else text(report))


def _play_all(
    simulated: Service,
    contenders: Sequence[Contender],
    startup: str,
    oracle: Oracle,
    limit: int,
    seed: int,
    jobs: int | None,
    console: Console,
) -> list[Outcome]:
    """Run each contender in a process; the longest runs start first."""
    for name in _THREADS:
        os.environ.setdefault(name, "1")  # small arrays; the other cores have runs of their own
    workers = min(jobs or len(os.sched_getaffinity(0)), len(contenders))
    state = (simulated, startup, oracle, limit, seed)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_prepare, initargs=state)
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


_STATE: list[tuple[Service, str, Oracle, int, int]] = []
"""The arguments that all runs of a worker share; sent once, as a load may be large."""


def _prepare(simulated: Service, startup: str, oracle: Oracle, limit: int, seed: int) -> None:
    _STATE.append((simulated, startup, oracle, limit, seed))


def _play(contender: Contender) -> Outcome:
    simulated, startup, oracle, limit, seed = _STATE[0]
    law = comparison.startup_of(startup)
    return comparison.play(simulated.workload, law, contender, oracle=oracle, limit=limit, seed=seed)
