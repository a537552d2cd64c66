"""`slipway delete`: deletes objects and waits until they are gone."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from serving import clock, errors
from serving.cli import exits
from serving.cli.objects import manifests
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name, named
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

POLL_SECONDS = 0.1


class _Deleted(NamedTuple):
    kind: Kind
    namespace: str | None
    name: str
    uid: str


@with_target
def delete(
    target: Target,
    what: Annotated[list[str] | None, typer.Argument(help="KIND NAME..., or KIND/NAME...")] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("-f", "--filename", metavar="FILE", help="Delete the objects of these manifests."),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until they are gone.")] = True,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait.")] = 60.0,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="An object that does not exist is no error.")
    ] = False,
) -> None:
    """Delete objects, and everything that they own."""
    objects = _selected(what or [], file or [], target)

    async def work(kube: "Kube") -> int:
        failed = 0
        deleted: list[_Deleted] = []
        for kind, where, name in objects:
            try:
                stored = await kube.get(kind, where, name)
                await kube.delete(kind, where, name)
            except errors.NotFound as error:
                if not ignore_not_found:
                    print(f"error: {exits.words(error)}", file=sys.stderr)
                    failed = failed or exits.code(error)
                continue
            print(f"{full_name(kind, name)} deleted", flush=True)
            deleted.append(_Deleted(kind, where, name, stored["metadata"]["uid"]))
        if wait:
            await _wait_until_gone(kube, deleted, timeout)
        return failed

    if failed := with_kube(target.kubeconfig, work):
        sys.exit(failed)


def _selected(arguments: list[str], files: list[str], target: Target) -> list[tuple[Kind, str | None, str]]:
    if bool(arguments) == bool(files):
        raise errors.UserError("say what to delete: KIND NAME..., or -f FILE")
    if files:
        return [(d.kind, d.namespace, d.name) for d in reversed(manifests.read(files, target))]
    objects = [(kind, target.namespace if kind.namespaced else None, name) for kind, name in named(arguments)]
    if any(name is None for _, _, name in objects):
        raise errors.UserError("name the objects: deleting all of a kind is not offered")
    return [(kind, where, name) for kind, where, name in objects if name is not None]


async def _wait_until_gone(kube: "Kube", objects: list[_Deleted], timeout: float) -> None:
    deadline = clock.monotonic() + timeout
    for kind, where, name, uid in objects:
        while await _uid(kube, kind, where, name) == uid:
            if clock.monotonic() > deadline:
                raise errors.UserError(
                    f"{full_name(kind, name)} is still there after {timeout:g} s; "
                    f"`slipway describe {kind.singular} {name}` shows its finalizers"
                )
            await asyncio.sleep(POLL_SECONDS)


async def _uid(kube: "Kube", kind: Kind, where: str | None, name: str) -> Any:
    try:
        return (await kube.get(kind, where, name))["metadata"]["uid"]
    except errors.NotFound:
        return None
