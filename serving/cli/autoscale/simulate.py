"""`slipway autoscale simulate`: the options of a simulation on recorded load; `simulation` runs it."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def simulate(
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Recorded load: .csv or .csv.gz, recognised by its columns."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Compare with this policy; may be repeated; `all` is all.  [default: one of each kind]",
        ),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            "--risk",
            metavar="PERCENT",
            min=0.001,
            max=50,
            help="Of requests that may arrive while there is too little capacity.  "
            "[default: the autoscaler's, and one lower and higher for comparison]",
        ),
    ] = None,
    min_replicas: Annotated[
        int, typer.Option("--min", metavar="N", min=0, max=1000, help="Least replicas.")
    ] = 1,
    max_replicas: Annotated[
        int | None,
        typer.Option(
            "--max",
            metavar="N",
            min=1,
            max=1000,
            help="Most replicas.  [default: three times what the peak needs]",
        ),
    ] = None,
    startup: Annotated[
        str,
        typer.Option(
            "--startup",
            metavar="SECONDS",
            help="Duration of a start; `fleet`: as measured on a fleet of GPUs.",
        ),
    ] = "60",
    capacity: Annotated[
        float | None,
        typer.Option(
            "--capacity",
            metavar="RATE",
            help="Requests, tokens (an output token counts as 4) or GPU seconds per second "
            "that one replica takes.  [default: so that 15 are needed on the mean]",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            min=1,
            help="Requests that one replica serves at the same time.  "
            "[default: by --capacity, so that a request takes 2 s]",
        ),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--days",
            metavar="D",
            help="Simulate the last days of the trace.  [default: 2, and at most three quarters of it]",
        ),
    ] = None,
    history: Annotated[
        float | None,
        typer.Option(
            "--history",
            metavar="D",
            min=0,
            help="Days before those that policies know.  [default: all, 14 at most]",
        ),
    ] = None,
    client: Annotated[
        str,
        typer.Option("--client", metavar="NAME", help="Of a trace with several clients: only this one."),
    ] = "",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            help="Of start-up times, lost readings, and values that the trace lacks.",
        ),
    ] = 0,
    output: Annotated[
        Literal["text", "html", "json"] | None,
        typer.Option(
            "-o",
            "--output",
            help="Output format; a page comes with a JSON file.  [default: by the name of --out, else text]",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write it there.  [default: of html, TRACE.html; else standard output]",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help="Processes.  [default: one per core]"),
    ] = None,
    prometheus: Annotated[
        str,
        typer.Option("--prometheus", metavar="URL", help="Take the load from there, instead of --trace."),
    ] = "",
    query: Annotated[
        str,
        typer.Option(
            "--query",
            metavar="PROMQL",
            help='Requests per second: sum(rate(slipway_requests_received_total{predictor="..."}[1m])).',
        ),
    ] = "",
    start: Annotated[
        str,
        typer.Option("--start", metavar="TIME", help="RFC 3339, Unix seconds, or how long ago: 2d."),
    ] = "2d",
    end: Annotated[str, typer.Option("--end", metavar="TIME", help="[default: now]")] = "0s",
    step: Annotated[str, typer.Option("--step", metavar="1m", help="Between two values.")] = "1m",
) -> None:
    """Run our policy and the field's on recorded load, and compare them.

    It needs no API. Nothing is deployed.
    """
    from serving.cli.autoscale import simulation
    from serving.cli.autoscale.sources import LoadSource

    simulation.run(
        LoadSource(trace, prometheus, query, start, end, step),
        simulation.wish(min_replicas, max_replicas, capacity, concurrency, days, history, client),
        policies=policy or [],
        risk=risk,
        startup=startup,
        seed=seed,
        output=output,
        out=out,
        jobs=jobs,
    )
