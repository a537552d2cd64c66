"""`slipway version`: of this program, and of the API where one answers."""

from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
import typer
import yaml

from serving import errors
from serving.cli.session import with_kube
from serving.cli.target import DataDirOption, KubeconfigOption, target

if TYPE_CHECKING:
    from serving.kube import Kube


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("version")(version)


def version(
    output: Annotated[Literal["text", "json", "yaml"], typer.Option("-o", "--output", help="How to print.")] = "text",
    client: Annotated[bool, typer.Option("--client", help="Do not ask the API.")] = False,
    kubeconfig: KubeconfigOption = None, data_dir: DataDirOption = None,
) -> None:  # fmt: skip
    """Print the versions of the client and, where one answers, of the API."""
    found: dict[str, Any] = {"client": metadata.version("slipway")}
    if not client:
        found["server"] = _server(kubeconfig, data_dir)
    if output == "json":
        print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
    elif output == "yaml":
        print(yaml.safe_dump(found, sort_keys=False), end="")
    else:
        print(f"slipway {found['client']}")
        if not client:
            print(f"server  {found['server'] or 'none answers'}")


def _server(kubeconfig: Any, data_dir: Any) -> str | None:
    async def work(kube: "Kube") -> str:
        return str((await kube.request("GET", "/version")).get("gitVersion", ""))

    try:
        return with_kube(target(kubeconfig, data_dir).kubeconfig, work)
    except (errors.Unavailable, errors.ApiError, errors.UserError):
        return None
