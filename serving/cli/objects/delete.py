"""`slipway delete`: deletes objects and waits until they are gone."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from serving import clock, errors
from serving.cli import exits
from serving.cli.completion import candidates
from serving.cli.completion.values import Completes
from serving.cli.objects import manifests
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name, named
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

POLL_SECONDS = 0.1


class _Selected(NamedTuple):
    """The objects that the arguments or the files of a command select."""

    kind: Kind
    namespace: str | None
    """None for kinds without a namespace."""
    name: str | None
    """None: the objects of the kind that -l selects."""


class _Named(NamedTuple):
    """One object by its name."""

    kind: Kind
    namespace: str | None
    name: str


class _Deleted(NamedTuple):
    """One object whose deletion the API has accepted; it remains until its finalizers are removed."""

    kind: Kind
    namespace: str | None
    name: str
    uid: str


@with_target
def delete(
    target: Target,
    resources: Annotated[
        list[str] | None,
        typer.Argument(help="KIND NAME..., or KIND/NAME...; KIND,KIND with -l."),
        Completes(candidates.kinds_and_names),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("-f", "--filename", metavar="FILE", help="Delete the objects of these manifests."),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            "-l", "--selector", metavar="KEY=VALUE,...", help="Delete the objects with these labels."
        ),
    ] = "",
    wait: Annotated[bool, typer.Option(help="Wait until they are gone.")] = True,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait.")] = 60.0,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="An object that does not exist is no error.")
    ] = False,
) -> None:
    """Delete objects, and everything that they own."""
    selected = _selected(resources or [], file or [], labels, target)

    async def work(kube: "Kube") -> int:
        objects = await _with_names(kube, selected, labels)
        exit_code = 0
        deleted: list[_Deleted] = []
        for kind, namespace, name in objects:
            try:
                stored = await kube.get(kind, namespace, name)
                await kube.delete(kind, namespace, name)
            except errors.ApiError as error:
                if not (ignore_not_found and isinstance(error, errors.NotFound)):
                    print(f"error: {exits.words(error)}", file=sys.stderr)
                    exit_code = exit_code or exits.code(error)
                continue
            print(f"{full_name(kind, name)} deleted", flush=True)
            deleted.append(_Deleted(kind, namespace, name, stored["metadata"]["uid"]))
        if wait:
            await _wait_until_gone(kube, deleted, timeout)
        return exit_code

    if exit_code := with_kube(target.kubeconfig, work):
        sys.exit(exit_code)


def _selected(arguments: list[str], files: list[str], labels: str, target: Target) -> list[_Selected]:
    if bool(arguments) == bool(files):
        raise errors.UserError("say what to delete: KIND NAME..., KIND -l SELECTOR, or -f FILE")
    if files:
        if labels:
            raise errors.UserError("-l selects objects of a kind, not of files: give KIND -l SELECTOR")
        documents = reversed(manifests.read(files, target))  # the last one may need the ones before it
        return [_Selected(document.kind, document.namespace, document.name) for document in documents]
    objects = [
        _Selected(kind, target.namespace if kind.namespaced else None, name)
        for kind, name in named(arguments)
    ]
    if labels and any(selection.name for selection in objects):
        raise errors.UserError("give either names or -l SELECTOR, not both")
    if not labels and not all(selection.name for selection in objects):
        raise errors.UserError(
            "name the objects, or select them with -l: deleting all of a kind is not offered"
        )
    return objects


async def _with_names(kube: "Kube", selected: list[_Selected], labels: str) -> list[_Named]:
    """Return the objects to delete; a selection without a name becomes the kind's objects with `labels`."""
    objects: list[_Named] = []
    for kind, namespace, name in selected:
        if name is not None:
            objects.append(_Named(kind, namespace, name))
            continue
        matching = (await kube.list(kind, namespace, labels=labels)).items
        objects += [_Named(kind, namespace, item["metadata"]["name"]) for item in matching]
    if not objects:
        print("No resources found.", file=sys.stderr)
    return objects


async def _wait_until_gone(kube: "Kube", objects: list[_Deleted], timeout: float) -> None:
    """Wait at most `timeout` seconds in all; a new object of the same name has another uid and is ignored."""
    deadline = clock.monotonic() + timeout
    for kind, namespace, name, uid in objects:
        while await _uid(kube, kind, namespace, name) == uid:
            if clock.monotonic() > deadline:
                raise errors.UserError(
                    f"{full_name(kind, name)} is still there after {timeout:g} s; "
                    f"`slipway describe {kind.singular} {name}` shows its finalizers"
                )
            await asyncio.sleep(POLL_SECONDS)


async def _uid(kube: "Kube", kind: Kind, namespace: str | None, name: str) -> Any:
    """Return the uid of the object of this name; None if there is none."""
    try:
        return (await kube.get(kind, namespace, name))["metadata"]["uid"]
    except errors.NotFound:
        return None
