"""`slipway model push`: a version's image from this machine's store into any registry."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from serving import errors
from serving.cli.model.store import opened, ready
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.images import registry
from serving.images.registry import Credentials, Pushed, Reference, Registry
from serving.images.store.model_store import CountedStore

if TYPE_CHECKING:
    from serving.kube import Kube


def push(name: str, reference: str, meant: Target, docker_config: Path | None) -> None:
    """Push; the reference's tag is the version's name where it has none."""
    wanted = Reference.parse(reference)
    target = wanted if wanted.tag or wanted.digest else wanted.tagged(name)

    async def work(kube: "Kube") -> None:
        status = (await ready(kube, meant.namespace, name))["status"]
        pushed = await _push(meant, status["digest"], status["size"], target, docker_config)
        print(f"pushed {pushed.image}" + (f" as {target.tag}" if target.tag else ""))
        print(
            f"{decimal(pushed.bytes_uploaded)} sent, {decimal(pushed.bytes_mounted)} mounted,"
            f" {decimal(pushed.bytes_skipped)} were there",
            file=sys.stderr,
        )

    with_kube(meant.kubeconfig, work)


async def _push(
    meant: Target, digest: str, size: int, target: Reference, docker_config: Path | None
) -> Pushed:
    with _bar() as bar:
        if bar.disable:
            print(f"pushing to {target}", file=sys.stderr, flush=True)
        task = bar.add_task(str(target), total=size)
        store = opened(meant, lambda root: CountedStore(root, lambda count: bar.advance(task, count)))
        if not await asyncio.to_thread(store.has, digest):
            raise errors.UserError(
                f"{digest} is not in the model store {store.root}: it was evicted, or built on another machine"
            )
        async with Registry(Credentials.from_docker(docker_config)) as client:
            return await registry.push(client, store, digest, target)


def _bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
