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
            help="Accepted share of requests that arrive while there is too little capacity.  "
            "[default: the autoscaler's, and one lower and higher for comparison]",
        ),
    ] = None,
    min_replicas: Annotated[
        int, typer.Option("--min", metavar="N", min=0, max=1000, help="Fewest replicas.")
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
            help="Days before the simulated ones that policies know.  [default: all, 14 at most]",
        ),
    ] = None,
    client: Annotated[
        str,
        typer.Option("--client", metavar="NAME", help="Simulate only this client of a trace with several."),
    ] = "",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            help="Seed of the random start-up times, lost readings, and values that the trace lacks.",
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
            help="Write the comparison to this file.  [default: TRACE.html for html, else standard output]",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, help="Number of processes.  [default: one per core]"),
    ] = None,
    prometheus: Annotated[
        str,
        typer.Option(
            "--prometheus", metavar="URL", help="Read the load from this Prometheus, instead of --trace."
        ),
    ] = "",
    query: Annotated[
        str,
        typer.Option(
            "--query",
            metavar="PROMQL",
            help='Query for the requests per second, such as sum(rate(slipway_requests_received_total{predictor="..."}[1m])).',
        ),
    ] = "",
    start: Annotated[
        str,
        typer.Option(
            "--start",
            metavar="TIME",
            help="Start of the load: RFC 3339, Unix seconds, or how long ago, such as 2d.",
        ),
    ] = "2d",
    end: Annotated[
        str, typer.Option("--end", metavar="TIME", help="End of the load, like --start.  [default: now]")
    ] = "0s",
    step: Annotated[
        str, typer.Option("--step", metavar="DURATION", help="Time between two values of the query.")
    ] = "1m",
) -> None:
    """Compare Slipway's policy with HPA, KEDA, Knative and others on recorded load.

    It needs no API. Nothing is deployed.
    """
    from serving.cli.autoscale import simulation
    from serving.cli.autoscale.sources import LoadSource

    simulation.run(
        LoadSource(trace, prometheus, query, start, end, step),
        simulation.service_options(min_replicas, max_replicas, capacity, concurrency, days, history, client),
        policies=policy or [],
        risk=risk,
        startup=startup,
        seed=seed,
        output=output,
        out=out,
        jobs=jobs,
    )
