"""What can be typed: every command with its arguments, options and help.

Only shapes stand here, and only what they need is imported, so that `--help`, completion and mistakes are answered
at once; each command imports what it does when it is run.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from serving.cli.autoscale.commands import autoscale
from serving.cli.config.commands import config
from serving.cli.model.commands import model
from serving.cli.options import ConfigFile, DataDirOfUp, Kubeconfig, Namespace, Output, OwnDataDir
from serving.cli.tune.commands import tune

app = typer.Typer(
    name="slipway",
    help="From a finished training job to weighted traffic.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
traffic = typer.Typer(
    help="Show and set how traffic is split over the arms.", no_args_is_help=True, rich_markup_mode=None
)

InferenceName = Annotated[str, typer.Argument(help="The Inference.")]


@app.command()
def up(
    data_dir: OwnDataDir = None,
    config_file: ConfigFile = None,
    port: Annotated[int | None, typer.Option(help="Port of the API; 0 picks a free one.  [default: the configured one, else last time's, else 7443]", metavar="N", min=0, max=65535)] = None,
    gateway_port: Annotated[int | None, typer.Option(help="Port of the gateway; 0 picks a free one.  [default: the configured one, else last time's, else 8080]", metavar="N", min=0, max=65535)] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address of the API, as `api.host` of the configuration. Who reaches it and has the token can run commands.")] = None,
    gateway_host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address of the gateway, as `gateway.host` of the configuration.")] = None,
    prometheus: Annotated[str | None, typer.Option(metavar="URL", help="The Prometheus that the autoscaler asks where a metric names none, and for the load of the last weeks, as `controllers.prometheus` of the configuration.")] = None,
) -> None:  # fmt: skip
    """Run everything on this machine until Ctrl-C."""
    from serving.cli.machine import up as command

    given = {
        "api.port": ("--port", port), "api.host": ("--host", host),
        "gateway.port": ("--gateway-port", gateway_port), "gateway.host": ("--gateway-host", gateway_host),
        "controllers.prometheus": ("--prometheus", prometheus),
    }  # fmt: skip
    command.up(
        data_dir, config_file, {path: option for path, option in given.items() if option[1] is not None}
    )


@app.command()
def down(data_dir: OwnDataDir = None) -> None:
    """Stop what `slipway up` started.

    Also after `up` itself was killed.
    """
    from serving.cli.machine import up as command

    command.down(data_dir)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end.")] = False,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", metavar="DIR", help="Where its data lies.  [default: a temporary directory]")] = None,
) -> None:  # fmt: skip
    """Train, serve and shift traffic; then clean up.

    Two models, one endpoint, a few thousand requests: every number that is shown is measured.
    """
    from serving.cli.demo import command

    command.demo(data_dir, keep=keep)


@app.command()
def apply(
    file: Annotated[list[str], typer.Option("-f", "--filename", metavar="FILE", help="File or directory of manifests; - is standard input.")],
    force_conflicts: Annotated[bool, typer.Option("--force-conflicts", help="Take over fields that somebody else has set.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the API check everything, and change nothing.")] = False,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Create or change the objects of manifests."""
    from serving.cli.objects import apply as command
    from serving.cli.target import target

    command.apply(file, target(kubeconfig, data_dir, namespace), force=force_conflicts, dry_run=dry_run)


@app.command()
def get(
    what: Annotated[list[str] | None, typer.Argument(help="KIND [NAME...], KIND/NAME..., KIND,KIND; nothing: every arm of every Inference.")] = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print.")] = "table",
    labels: Annotated[str, typer.Option("-l", "--selector", metavar="KEY=VALUE,...", help="Only objects with these labels.")] = "",
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Go on printing changes.")] = False,
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces.")] = False,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Show objects."""
    from serving.cli.objects import get as command
    from serving.cli.target import target

    meant = target(kubeconfig, data_dir, namespace)
    command.get(what or [], meant, None if all_namespaces else meant.namespace, output, labels, watch=watch)


@app.command()
def describe(
    what: Annotated[list[str], typer.Argument(help="KIND NAME..., or KIND/NAME...")],
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Show objects with their conditions, Events and lineage."""
    from serving.cli.objects import describe as command
    from serving.cli.target import target

    command.describe(what, target(kubeconfig, data_dir, namespace))


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help="An Inference's name; or pod/NAME, job/NAME, deployment/NAME.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on printing what comes.")] = False,
    previous: Annotated[bool, typer.Option("-p", "--previous", help="Of the run before the last restart.")] = False,
    container: Annotated[str, typer.Option("-c", "--container", metavar="NAME", help="[default: the first]")] = "",
    predictor: Annotated[str, typer.Option(metavar="ARM", help="Only this arm of the Inference.")] = "",
    tail: Annotated[int | None, typer.Option(metavar="N", help="Only the last lines.", min=0)] = None,
    since: Annotated[str, typer.Option(metavar="5s|2m|3h", help="Only lines that are not older.")] = "",
    timestamps: Annotated[bool, typer.Option("--timestamps", help="With the time of each line.")] = False,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Print what replicas and Jobs have written."""
    from serving.cli.objects import logs as command
    from serving.cli.target import target

    query = {
        "follow": str(follow).lower(),
        "previous": str(previous).lower(),
        "timestamps": str(timestamps).lower(),
        "container": container,
        "tailLines": "" if tail is None else str(tail),
        "sinceSeconds": str(command.seconds(since)) if since else "",
    }
    command.logs(name, target(kubeconfig, data_dir, namespace), query, predictor)


@app.command()
def top(
    what: Annotated[list[str] | None, typer.Argument(help="inference [NAME...], pod [NAME...]; nothing: the replicas of every Inference.")] = None,
    labels: Annotated[str, typer.Option("-l", "--selector", metavar="KEY=VALUE,...", help="Only Pods with these labels.")] = "",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces.")] = False,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Show what replicas use, beside their requests and limits."""
    from serving.cli.objects import top as command
    from serving.cli.target import target

    meant = target(kubeconfig, data_dir, namespace)
    command.top(what or [], meant, None if all_namespaces else meant.namespace, labels)


@app.command()
def delete(
    what: Annotated[list[str] | None, typer.Argument(help="KIND NAME..., or KIND/NAME...")] = None,
    file: Annotated[list[str] | None, typer.Option("-f", "--filename", metavar="FILE", help="Delete the objects of these manifests.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until they are gone.")] = True,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait.")] = 60.0,
    ignore_not_found: Annotated[bool, typer.Option("--ignore-not-found", help="An object that is not there is fine.")] = False,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Delete objects, and everything that they own."""
    from serving.cli.objects import delete as command
    from serving.cli.target import target

    command.delete(
        what or [], file or [], target(kubeconfig, data_dir, namespace),
        timeout=timeout if wait else None, ignore_not_found=ignore_not_found,
    )  # fmt: skip


@traffic.command("get")
def traffic_get(
    name: InferenceName,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Show the weights that are asked for and the shares that are served."""
    from serving.cli import traffic as command
    from serving.cli.target import target

    command.get(name, target(kubeconfig, data_dir, namespace))


@traffic.command("set")
def traffic_set(
    name: InferenceName,
    weights: Annotated[list[str], typer.Argument(help="ARM=WEIGHT ...; weights are relative to their sum.")],
    wait: Annotated[bool, typer.Option("--wait", help="Until every gateway serves it.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait.")] = 30.0,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Set the weights of the arms that are named; the others keep theirs."""
    from serving.cli import traffic as command
    from serving.cli.target import target

    wanted = command.parse(weights)
    command.set_(name, wanted, target(kubeconfig, data_dir, namespace), timeout=timeout if wait else None)


app.add_typer(traffic, name="traffic")
app.add_typer(model, name="model")
app.add_typer(tune, name="tune")
app.add_typer(autoscale, name="autoscale")
app.add_typer(config, name="config")


@app.command()
def convert(
    file: Annotated[list[str], typer.Option("-f", "--filename", metavar="FILE", help="Manifests of Morphling; a file, a directory, or - for standard input.")],
    output: Annotated[Literal["yaml", "json"], typer.Option("-o", "--output", help="How to print.")] = "yaml",
    model_version: Annotated[str | None, typer.Option("--model-version", metavar="NAME", help="The ModelVersion that is tuned.  [default: named after the model]")] = None,
) -> None:  # fmt: skip
    """Print Morphling's ProfilingExperiments as ours; say what has no equivalent."""
    from serving.cli import convert as command

    command.convert(file, output, model_version)


@app.command()
def version(
    output: Annotated[Literal["text", "json", "yaml"], typer.Option("-o", "--output", help="How to print.")] = "text",
    client: Annotated[bool, typer.Option("--client", help="Do not ask the API.")] = False,
    kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Print the versions of client and API."""
    from serving.cli import version as command

    command.version(kubeconfig, data_dir, output, ask=not client)
