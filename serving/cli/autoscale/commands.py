"""What can be typed after `slipway autoscale`. As in `serving.cli.commands`, a command imports what it does when it runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from serving.cli.options import DataDirOfUp, Kubeconfig, Namespace

autoscale = typer.Typer(
    help="See why replicas are what they are, and try policies on recorded load.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ScalerName = Annotated[str, typer.Argument(metavar="NAME", help="The Autoscaler, or INFERENCE/PREDICTOR.")]


@autoscale.command()
def status(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="An Autoscaler, or INFERENCE/PREDICTOR; nothing: all of the namespace.")] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Follow changes until Ctrl-C.")] = False,
    output: Annotated[Literal["table", "json", "yaml"], typer.Option("-o", "--output", help="How to print.")] = "table",
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Show replicas, load, forecast and the rule that bound."""
    from serving.cli.autoscale import status as command
    from serving.cli.target import target

    command.status(name, target(kubeconfig, data_dir, namespace), output, watch=watch)


@autoscale.command()
def explain(
    name: ScalerName, namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Say why the count is what it is, and what is expected next."""
    from serving.cli.autoscale import status as command
    from serving.cli.target import target

    command.explain(name, target(kubeconfig, data_dir, namespace))


@autoscale.command()
def record(
    name: ScalerName,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="A new .csv or .csv.gz file, which `simulate --trace` reads.")],
    duration: Annotated[str, typer.Option("--duration", metavar="30s|10m|2h", help="[default: until Ctrl-C]")] = "",
    pages: Annotated[list[str] | None, typer.Option("--metrics", metavar="URL", help="Page of a gateway's metrics, several times for several.  [default: those of the `up` on this machine]")] = None,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Record what arrives at a predictor, second by second."""
    from serving.cli.autoscale import record as command
    from serving.cli.target import target

    command.record(name, target(kubeconfig, data_dir, namespace), out, duration, pages or [])


@autoscale.command()
def simulate(
    trace: Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="Recorded load: .csv or .csv.gz, known by its columns.")] = None,
    policy: Annotated[list[str] | None, typer.Option("--policy", metavar="NAME", help="Compare with this policy, several times for several; `all` is all.  [default: one of each kind]")] = None,
    risk: Annotated[float | None, typer.Option("--risk", metavar="PERCENT", min=0.001, max=50, help="Of requests that may come while there is too little capacity.  [default: the autoscaler's, and one lower and higher for comparison]")] = None,
    min_replicas: Annotated[int, typer.Option("--min", metavar="N", min=0, max=1000, help="Least replicas.")] = 1,
    max_replicas: Annotated[int | None, typer.Option("--max", metavar="N", min=1, max=1000, help="Most replicas.  [default: three times what the peak needs]")] = None,
    startup: Annotated[str, typer.Option("--startup", metavar="SECONDS", help="What a start takes; `fleet`: as measured on a fleet of GPUs.")] = "60",
    capacity: Annotated[float | None, typer.Option("--capacity", metavar="RATE", help="Requests, tokens (an output token counts as 4) or GPU seconds per second that one replica takes.  [default: so that 15 are needed on the mean]")] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", metavar="N", min=1, help="Requests that one replica serves at the same time.  [default: by --capacity, so that a request takes 2 s]")] = None,
    days: Annotated[float | None, typer.Option("--days", metavar="D", help="Simulate the last days of the trace.  [default: 2, and at most three quarters of it]")] = None,
    history: Annotated[float | None, typer.Option("--history", metavar="D", min=0, help="Days before those that policies know.  [default: all, 14 at most]")] = None,
    client: Annotated[str, typer.Option("--client", metavar="NAME", help="Of a trace with several clients: only this one.")] = "",
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of start-up times, lost readings, and what the trace does not say.")] = 0,
    output: Annotated[Literal["text", "html", "json"] | None, typer.Option("-o", "--output", help="How to print; beside a page lies its JSON.  [default: by the name of --out, else text]")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there.  [default: of html, TRACE.html; else standard output]")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes.  [default: one per core]")] = None,
    prometheus: Annotated[str, typer.Option("--prometheus", metavar="URL", help="Take the load from there, instead of --trace.")] = "",
    query: Annotated[str, typer.Option("--query", metavar="PROMQL", help='Requests per second: sum(rate(slipway_requests_received_total{predictor="..."}[1m])).')] = "",
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="RFC 3339, Unix seconds, or how long ago: 2d.")] = "2d",
    end: Annotated[str, typer.Option("--end", metavar="TIME", help="[default: now]")] = "0s",
    step: Annotated[str, typer.Option("--step", metavar="1m", help="Between two values.")] = "1m",
) -> None:  # fmt: skip
    """Run our policy and the field's on recorded load, and compare them.

    It needs no API. Nothing is deployed.
    """
    from serving.cli.autoscale import simulate as command
    from serving.cli.autoscale import sources

    source = sources.Source(trace, prometheus, query, start, end, step)
    wish = command.wish(min_replicas, max_replicas, capacity, concurrency, days, history, client)
    command.simulate(source, wish, policy or [], risk, startup, seed, output, out, jobs)
