"""`slipway delete`: deletion that can wait until everything is gone."""

import asyncio
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from serving import clock, errors
from serving.cli import exits
from serving.cli.objects import manifests
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


def delete(
    what: list[str], files: list[str], meant: Target, *, timeout: float | None, ignore_not_found: bool
) -> None:
    """Delete objects; `timeout` is in seconds, None does not wait."""
    objects = _meant(what, files, meant)

    async def work(kube: "Kube") -> int:
        failed = 0
        deleted: list[_Deleted] = []
        for kind, where, name in objects:
            try:
                found = await kube.get(kind, where, name)
                await kube.delete(kind, where, name)
            except errors.NotFound as error:
                if not ignore_not_found:
                    print(f"error: {exits.words(error)}", file=sys.stderr)
                    failed = failed or exits.code(error)
                continue
            print(f"{full_name(kind, name)} deleted", flush=True)
            deleted.append(_Deleted(kind, where, name, found["metadata"]["uid"]))
        if timeout is not None:
            await _gone(kube, deleted, timeout)
        return failed

    if failed := with_kube(meant.kubeconfig, work):
        raise typer.Exit(failed)


def _meant(what: list[str], files: list[str], meant: Target) -> list[tuple[Kind, str | None, str]]:
    if bool(what) == bool(files):
        raise errors.UserError("say what to delete: KIND NAME..., or -f FILE")
    if files:
        return [(d.kind, d.namespace, d.name) for d in reversed(manifests.read(files, meant))]
    found = [(kind, meant.namespace if kind.namespaced else None, name) for kind, name in named(what)]
    if any(name is None for _, _, name in found):
        raise errors.UserError("name the objects: deleting all of a kind is not offered")
    return [(kind, where, name) for kind, where, name in found if name is not None]


async def _gone(kube: "Kube", objects: list[_Deleted], timeout: float) -> None:
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
