"""`slipway version`: of this program, and of the API where one answers."""

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving import errors
from serving.cli.session import find_kubeconfig, with_kube

if TYPE_CHECKING:
    from serving.kube import Kube


def version(kubeconfig: Path | None, data_dir: Path | None, output: str, *, ask: bool) -> None:
    """Print as `text`, `json` or `yaml`; the API's version is null where none answers."""
    found: dict[str, Any] = {"client": metadata.version("slipway")}
    if ask:
        found["server"] = _server(kubeconfig, data_dir)
    if output == "json":
        import orjson

        print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
    elif output == "yaml":
        import yaml

        print(yaml.safe_dump(found, sort_keys=False), end="")
    else:
        print(f"slipway {found['client']}")
        if ask:
            print(f"server  {found['server'] or 'none answers'}")


def _server(kubeconfig: Path | None, data_dir: Path | None) -> str | None:
    async def work(kube: "Kube") -> str:
        return str((await kube.request("GET", "/version")).get("gitVersion", ""))

    try:
        return with_kube(find_kubeconfig(kubeconfig, data_dir), work)
    except (errors.Unavailable, errors.ApiError, errors.UserError):
        return None
