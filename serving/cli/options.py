"""Options that several commands have.

`with_target` adds the options -n, --kubeconfig and --data-dir, which choose API and namespace, to a command.
"""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from serving.cli.completion import candidates
from serving.cli.completion.values import Completes

Watch = Annotated[bool, typer.Option("-w", "--watch", help="Follow it to its end; exit code 1 if it fails.")]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces.")]
Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", metavar="NAME", help="[default: the kubeconfig's, else default]"),
    Completes(candidates.namespaces),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="The API to talk to.  [default: that of the running `up`, else the current one]",
    ),
]
DataDirOfUp = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Talk to the `up` of this directory.")
]
OwnDataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Data directory."
        "  [default: $SLIPWAY_DATA_DIR, $XDG_DATA_HOME/slipway or ~/.local/share/slipway]",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration file.  [default: DIR/config.yaml, where it exists]",
    ),
]

_TARGET_OPTIONS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    for name, annotation in (
        ("namespace", Namespace),
        ("kubeconfig", Kubeconfig),
        ("data_dir", DataDirOfUp),
    )
]


def before_command(
    context: typer.Context,
    namespace: Namespace = None,  # noqa: ARG001 declared for help, messages and completion
    kubeconfig: Kubeconfig = None,  # noqa: ARG001
    data_dir: DataDirOfUp = None,  # noqa: ARG001
) -> None:
    """Declare the options that a group takes before the name of its command.

    `command_group.run` passes them to the command.
    """
    # Typer calls this without a command too, as a group with options has `invoke_without_command`.
    if context.invoked_subcommand is None:
        context.fail("Missing command.")


def with_target(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `target` of a command by -n, --kubeconfig and --data-dir.

    They are resolved to the `Target` before the command runs.
    """

    @functools.wraps(command)
    def run(
        *,
        namespace: str | None = None,
        kubeconfig: Path | None = None,
        data_dir: Path | None = None,
        **values: Any,
    ) -> None:
        from serving.cli.target import resolve

        command(target=resolve(kubeconfig, data_dir, namespace), **values)

    signature = inspect.signature(command)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        if parameter.name != "target"
    ]
    parameters = [*own, *_TARGET_OPTIONS]
    # Typer reads names and defaults from the signature, and types from the annotations (those that `wraps`
    # has copied have `target`).
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
