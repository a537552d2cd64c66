"""What can be typed after `slipway model`. As in `serving.cli.commands`, a command imports what it does when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from serving.cli.options import DataDirOfUp, Kubeconfig, Namespace, Output

model = typer.Typer(
    help="Versions of models: show, bring in, copy, check and compare.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

VersionName = Annotated[str, typer.Argument(metavar="VERSION", help="The ModelVersion.")]
ImageName = Annotated[str, typer.Argument(metavar="REFERENCE", help="HOST[:PORT]/REPOSITORY[:TAG][@DIGEST].")]
OfModel = Annotated[str, typer.Option("--model", metavar="NAME", help="Of this Model.")]
Framework = Annotated[str, typer.Option(metavar="NAME", help="[default: what the files say]")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait until the version is ready.")]
Login = Annotated[
    Path | None,
    typer.Option("--docker-config", metavar="DIR", help="Directory of Docker's config.json.  [default: $DOCKER_CONFIG, else ~/.docker]"),
]  # fmt: skip


@model.command("list")
def list_(
    of: OfModel = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print.")] = "table",
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces.")] = False,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Show the versions of models, and who uses them."""
    from serving.cli.model import listing as command
    from serving.cli.target import target

    meant = target(kubeconfig, data_dir, namespace)
    command.list_(meant, None if all_namespaces else meant.namespace, of, output)


@model.command()
def get(
    names: Annotated[list[str], typer.Argument(metavar="VERSION...", help="ModelVersions.")],
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print.")] = "table",
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Show some versions."""
    from serving.cli.model import listing as command
    from serving.cli.target import target

    command.get(names, target(kubeconfig, data_dir, namespace), output)


@model.command()
def push(
    version: VersionName, reference: ImageName, docker_config: Login = None,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Copy a version's image into a registry.

    From this machine's model store; only what the registry lacks is sent.
    """
    from serving.cli.model import push as command
    from serving.cli.target import target

    command.push(version, reference, target(kubeconfig, data_dir, namespace), docker_config)


@model.command()
def pull(
    reference: ImageName,
    of: Annotated[str, typer.Option("--model", metavar="NAME", help="Make a version of this Model.  [default: the repository's last part]")] = "",
    name: Annotated[str, typer.Option("--name", metavar="VERSION", help="[default: the Model and the tag]")] = "",
    framework: Framework = "", timeout: Timeout = 600.0,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Make a version of a registry's image.

    And wait until it is ready.
    """
    from serving.cli.model import pull as command
    from serving.cli.target import target

    command.pull(reference, of, name, framework, target(kubeconfig, data_dir, namespace), timeout)


@model.command()
def verify(
    version: VersionName,
    key: Annotated[list[Path] | None, typer.Option("--key", metavar="FILE", help="PEM public key by one of which the image must be signed.  [default: the Model's]")] = None,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Check a version's files and its signature.

    Every byte in this machine's model store is read; exit code 1 if something is wrong.
    """
    from serving.cli.model import verify as command
    from serving.cli.target import target

    command.verify(version, target(kubeconfig, data_dir, namespace), key or [])


@model.command()
def diff(
    a: VersionName, b: VersionName,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Compare two versions: files, metrics, lineage."""
    from serving.cli.model import diff as command
    from serving.cli.target import target

    command.diff(a, b, target(kubeconfig, data_dir, namespace))


@model.command("import")
def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Files of a model; an MLflow run or model; a Hugging Face style directory.")],
    of: Annotated[str, typer.Option("--model", metavar="NAME", help="Make a version of this Model.")],
    version: Annotated[str, typer.Option("--version", metavar="NAME", help="[default: the Model and where the files come from]")] = "",
    framework: Framework = "", timeout: Timeout = 600.0,
    namespace: Namespace = None, kubeconfig: Kubeconfig = None, data_dir: DataDirOfUp = None,
) -> None:  # fmt: skip
    """Make a version of a directory.

    And wait until it is ready. The directory is only read.
    """
    from serving.cli.model import importing as command
    from serving.cli.target import target

    command.import_(directory, of, version, framework, target(kubeconfig, data_dir, namespace), timeout)
