"""`slipway model push`: copies a version's image from this machine's model store into a registry."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from serving import errors
from serving.cli.model.store import ImageName, VersionName, open_store, ready
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target

if TYPE_CHECKING:
    from serving.images.registry import Pushed, Reference
    from serving.kube import Kube


@with_target
def push(
    target: Target,
    version: VersionName,
    reference: ImageName,
    docker_config: Annotated[
        Path | None,
        typer.Option(
            "--docker-config",
            metavar="DIR",
            help="Directory of Docker's config.json.  [default: $DOCKER_CONFIG, else ~/.docker]",
        ),
    ] = None,
) -> None:
    """Copy a version's image into a registry.

    From this machine's model store; only blobs that the registry lacks are sent. The version's name is the
    default tag.
    """
    from serving.images.registry import Reference

    image = Reference.parse(reference)
    destination = image if image.tag or image.digest else image.tagged(version)

    async def work(kube: "Kube") -> None:
        status = (await ready(kube, target.namespace, version))["status"]
        pushed = await _push(target, status["digest"], status["size"], destination, docker_config)
        print(f"pushed {pushed.image}" + (f" as {destination.tag}" if destination.tag else ""))
        print(
            f"{decimal(pushed.bytes_uploaded)} sent, {decimal(pushed.bytes_mounted)} mounted,"
            f" {decimal(pushed.bytes_skipped)} were there",
            file=sys.stderr,
        )

    with_kube(target.kubeconfig, work)


async def _push(
    target: Target, digest: str, size: int, destination: "Reference", docker_config: Path | None
) -> "Pushed":
    from serving.images import registry
    from serving.images.registry import Credentials, Registry
    from serving.images.store.model_store import CountedStore

    with _bar() as bar:
        if bar.disable:
            print(f"pushing to {destination}", file=sys.stderr, flush=True)
        task = bar.add_task(str(destination), total=size)
        store = open_store(target, lambda root: CountedStore(root, lambda count: bar.advance(task, count)))
        if not await asyncio.to_thread(store.has, digest):
            raise errors.UserError(
                f"{digest} is not in the model store {store.root}: "
                "it was evicted, or built on another machine"
            )
        async with Registry(Credentials.from_docker(docker_config)) as client:
            return await registry.push(client, store, digest, destination)


def _bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
