"""`slipway version`: the versions of this program and of the API."""

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from serving import errors
from serving.cli.options import DataDirOfUp, Kubeconfig
from serving.cli.session import find_kubeconfig, with_kube

if TYPE_CHECKING:
    from serving.kube import Kube


def version(
    output: Annotated[
        Literal["text", "json", "yaml"], typer.Option("-o", "--output", help="Output format.")
    ] = "text",
    client: Annotated[bool, typer.Option("--client", help="Do not ask the API.")] = False,
    kubeconfig: Kubeconfig = None,
    data_dir: DataDirOfUp = None,
) -> None:
    """Print the versions of client and API.

    The API's version is null where none answers.
    """
    versions: dict[str, Any] = {"client": metadata.version("slipway")}
    if not client:
        versions["server"] = _server(kubeconfig, data_dir)
    if output == "json":
        import orjson

        print(orjson.dumps(versions, option=orjson.OPT_INDENT_2).decode())
    elif output == "yaml":
        import yaml

        print(yaml.safe_dump(versions, sort_keys=False), end="")
    else:
        print(f"slipway {versions['client']}")
        if not client:
            print(f"server  {versions['server'] or 'none answers'}")


def _server(kubeconfig: Path | None, data_dir: Path | None) -> str | None:
    async def work(kube: "Kube") -> str:
        return str((await kube.request("GET", "/version")).get("gitVersion", ""))

    try:
        return with_kube(find_kubeconfig(kubeconfig, data_dir), work)
    except (errors.Unavailable, errors.ApiError, errors.UserError):
        return None
