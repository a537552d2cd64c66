"""Finds the kubeconfig of a command and connects with it.

The client, whose import takes long, is imported only when a command connects.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from serving import errors
from serving.cli.exits import Exit
from serving.data_dir import DataDir
from serving.system import processes

if TYPE_CHECKING:
    from serving.kube import Kube

T = TypeVar("T")

POOL = 8
"""Connections of a command, which sends few requests at once."""
UNLIMITED = 0
"""No limit of connections (aiohttp's limit 0): for many long requests, such as those of followed logs."""


def find_kubeconfig(explicit: Path | None, data_dir: Path | None) -> Path:
    """Return the kubeconfig to use.

    In this order: --kubeconfig; --data-dir's; the first file of $KUBECONFIG; that of the default data
    directory while `up` or its API runs there; ~/.kube/config.

    Raises:
        errors.NoApi: there is none.
        errors.UserError: its directory belongs to another user.
    """
    if explicit is not None:
        return _existing(explicit.expanduser(), "--kubeconfig")
    if data_dir is not None:
        return _existing(DataDir(data_dir.expanduser().absolute()).kubeconfig, "--data-dir")
    # Like kubectl, skip empty entries: `$KUBECONFIG:FILE` has one where the variable was not set before.
    if named := next(filter(None, os.environ.get("KUBECONFIG", "").split(os.pathsep)), ""):
        return _existing(Path(named), "$KUBECONFIG")
    local = DataDir.default()
    if _runs(local) and _exists(local.kubeconfig):
        return local.kubeconfig
    home = Path.home() / ".kube" / "config"
    if _exists(home):
        return home
    raise errors.NoApi(
        "no API to talk to: start one with `slipway up`, "
        "or name one with --kubeconfig, --data-dir or $KUBECONFIG"
    )


def _existing(path: Path, source: str) -> Path:
    if not _exists(path):
        raise errors.NoApi(
            f"there is no kubeconfig at {path} (from {source}); is `slipway up` running there?"
        )
    return path


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError as error:
        raise _of_another_user(path.parent, error) from error


def _runs(data_dir: DataDir) -> bool:
    """Whether `up` or its API runs in the data directory."""
    try:
        return any(processes.read_running(data_dir.identity(component)) for component in ("up", "api"))
    except PermissionError as error:
        raise _of_another_user(data_dir.root, error) from error


def _of_another_user(directory: Path, error: PermissionError) -> errors.UserError:
    return errors.UserError(
        f"{directory} belongs to another user ({error.strerror}); "
        "name a kubeconfig of yours with --kubeconfig, --data-dir or $KUBECONFIG"
    )


def default_namespace(kubeconfig: Path) -> str:
    """Return the namespace of the current context, else `default`.

    Raises:
        errors.UserError: the file cannot be read, or is not a kubeconfig.
    """
    import yaml

    try:
        document = yaml.safe_load(kubeconfig.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UserError(f"cannot read {kubeconfig}: {error}") from error
    except yaml.YAMLError as error:
        raise errors.UserError(f"cannot use {kubeconfig}: {errors.place_in_yaml(error)}") from None
    if not isinstance(document, dict):
        content = "empty" if document is None else "not a kubeconfig"
        raise errors.UserError(f"cannot use {kubeconfig}: it is {content}")
    try:
        for context in document.get("contexts") or []:
            if context.get("name") == document.get("current-context"):
                return str((context.get("context") or {}).get("namespace") or "default")
    except (TypeError, AttributeError) as error:
        raise errors.UserError(
            f"cannot use {kubeconfig}: its contexts are not those of a kubeconfig"
        ) from error
    return "default"


def with_kube(kubeconfig: Path, work: "Callable[[Kube], Awaitable[T]]", *, pool: int = POOL) -> T:
    """Connect to the API, do the work, close the connections and return the result.

    Args:
        kubeconfig: of the API.
        work: gets the client.
        pool: the most connections, and so requests, at once.

    Raises:
        errors.Hung: the API does not answer a request, though it accepts connections.
        SystemExit: the user has pressed Ctrl-C.
    """
    import asyncio

    from serving.kube import connect

    async def main() -> T:
        async with await connect(kubeconfig, component="cli", pool=pool, detects_hangs=True) as kube:
            return await work(kube)

    try:
        return asyncio.run(main())
    except KeyboardInterrupt:
        raise SystemExit(Exit.INTERRUPTED) from None


async def answers(kubeconfig: Path) -> bool:
    """Whether the API of a kubeconfig answers."""
    import asyncio

    if not await asyncio.to_thread(kubeconfig.exists):
        return False
    from serving.kube import connect

    try:
        async with await connect(kubeconfig, component="cli", pool=1) as kube:
            await kube.raw("/version")
    except (errors.Unavailable, errors.ApiError, errors.UserError):
        return False
    return True
