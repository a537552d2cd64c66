"""`slipway autoscale simulate`: the options of a simulation on recorded load; `simulation` runs it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

# The load.
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace", metavar="FILE", help="Recorded load: .csv or .csv.gz, recognised by its columns."
    ),
]
PrometheusUrl = Annotated[
    str,
    typer.Option(
        "--prometheus", metavar="URL", help="Read the load from this Prometheus, instead of --trace."
    ),
]
Query = Annotated[
    str,
    typer.Option(
        "--query",
        metavar="PROMQL",
        help="Query for the requests per second, such as "
        'sum(rate(slipway_requests_received_total{predictor="..."}[1m])).',
    ),
]
Start = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="TIME",
        help="Start of the load: RFC 3339, Unix seconds, or how long ago, such as 2d.",
    ),
]
End = Annotated[
    str, typer.Option("--end", metavar="TIME", help="End of the load, like --start.  [default: now]")
]
Step = Annotated[
    str, typer.Option("--step", metavar="DURATION", help="Time between two values of the query.")
]
Client = Annotated[
    str,
    typer.Option("--client", metavar="NAME", help="Simulate only this client of a trace with several."),
]

# The simulated service.
MinReplicas = Annotated[int, typer.Option("--min", metavar="N", min=0, max=1000, help="Fewest replicas.")]
MaxReplicas = Annotated[
    int | None,
    typer.Option(
        "--max",
        metavar="N",
        min=1,
        max=1000,
        help="Most replicas.  [default: three times what the peak needs]",
    ),
]
Startup = Annotated[
    str,
    typer.Option(
        "--startup",
        metavar="SECONDS",
        help="Duration of a start; `fleet`: as measured on a fleet of GPUs.",
    ),
]
Capacity = Annotated[
    float | None,
    typer.Option(
        "--capacity",
        metavar="RATE",
        help="Requests, tokens (an output token counts as 4) or GPU seconds per second "
        "that one replica takes.  [default: so that 15 are needed on the mean]",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="Requests that one replica serves at the same time.  "
        "[default: by --capacity, so that a request takes 2 s]",
    ),
]
Days = Annotated[
    float | None,
    typer.Option(
        "--days",
        metavar="D",
        help="Simulate the last days of the trace.  [default: 2, and at most three quarters of it]",
    ),
]
History = Annotated[
    float | None,
    typer.Option(
        "--history",
        metavar="D",
        min=0,
        help="Days before the simulated ones that policies know.  [default: all, 14 at most]",
    ),
]

# The comparison.
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help="Compare with this policy; may be repeated; `all` is all.  [default: one of each kind]",
    ),
]
Risk = Annotated[
    float | None,
    typer.Option(
        "--risk",
        metavar="PERCENT",
        min=0.001,
        max=50,
        help="Accepted share of requests that arrive while there is too little capacity.  "
        "[default: the autoscaler's, and one lower and higher for comparison]",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="Seed of the random start-up times, lost readings, and values that the trace lacks.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", min=1, help="Number of processes.  [default: one per core]"),
]
Output = Annotated[
    Literal["text", "html", "json"] | None,
    typer.Option(
        "-o",
        "--output",
        help="Output format; a page comes with a JSON file.  [default: by the name of --out, else text]",
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Write the comparison to this file.  [default: TRACE.html for html, else standard output]",
    ),
]


def simulate(
    trace: TraceFile = None,
    policy: Policies = None,
    risk: Risk = None,
    min_replicas: MinReplicas = 1,
    max_replicas: MaxReplicas = None,
    startup: Startup = "60",
    capacity: Capacity = None,
    concurrency: Concurrency = None,
    days: Days = None,
    history: History = None,
    client: Client = "",
    seed: Seed = 0,
    output: Output = None,
    out: OutputFile = None,
    jobs: Jobs = None,
    prometheus: PrometheusUrl = "",
    query: Query = "",
    start: Start = "2d",
    end: End = "0s",
    step: Step = "1m",
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
