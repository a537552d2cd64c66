"""`slipway apply` and `slipway delete`: server-side apply under one name, and deletion that can wait."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import clock, errors
from serving.cli import exits, manifests
from serving.cli.session import with_kube
from serving.cli.target import (
    DataDirOption,
    KubeconfigOption,
    NamespaceOption,
    Target,
    full_name,
    named,
    target,
)
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

MANAGER = "slipway"
"""Field manager of what users apply with this command, so that controllers' names stay theirs."""
APPLY = "application/apply-patch+yaml"
POLL_SECONDS = 0.1


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("apply")(apply)
    app.command("delete")(delete)


def apply(
    file: Annotated[list[str], typer.Option("-f", "--filename", help="File or directory of manifests; - is standard input.")],
    force_conflicts: Annotated[bool, typer.Option(help="Take over fields that somebody else has set.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the API check everything, and change nothing.")] = False,
    namespace: NamespaceOption = None, kubeconfig: KubeconfigOption = None, data_dir: DataDirOption = None,
) -> None:  # fmt: skip
    """Create or change the objects of manifests."""
    meant = target(kubeconfig, data_dir, namespace)
    documents = manifests.read(file, meant)
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict", "force": str(force_conflicts).lower()}
    if dry_run:
        query["dryRun"] = "All"
    failed = with_kube(meant.kubeconfig, lambda kube: _apply_all(kube, documents, query))
    if failed:
        raise typer.Exit(failed)


async def _apply_all(kube: "Kube", documents: list[manifests.Document], query: dict[str, str]) -> int:
    """Apply all in order; what fails does not keep the others from being applied."""
    failed = 0
    for document in documents:
        try:
            print(
                f"{full_name(document.kind, document.name)} {await _apply(kube, document, query)}", flush=True
            )
        except errors.ApiError as error:
            print(
                f"error: {document.source}: {document.kind.kind} {document.name}: {exits.words(error)}",
                file=sys.stderr,
            )
            failed = failed or exits.code(error)
    return failed


async def _apply(kube: "Kube", document: manifests.Document, query: dict[str, str]) -> str:
    path = document.kind.path(document.namespace, document.name)
    try:
        before = (await kube.request("GET", path))["metadata"]["resourceVersion"]
    except errors.NotFound:
        before = None
    after = await kube.request("PATCH", path, body=document.body, query=query, content_type=APPLY)
    done = "unchanged" if after["metadata"].get("resourceVersion") == before else "configured"
    suffix = " (dry run)" if "dryRun" in query else ""
    return ("created" if before is None else done) + suffix


def delete(
    what: Annotated[list[str] | None, typer.Argument(help="KIND NAME..., or KIND/NAME...")] = None,
    file: Annotated[list[str] | None, typer.Option("-f", "--filename", help="Delete the objects of these manifests.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until they are gone.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait.")] = 60.0,
    ignore_not_found: Annotated[bool, typer.Option(help="An object that is not there is fine.")] = False,
    namespace: NamespaceOption = None, kubeconfig: KubeconfigOption = None, data_dir: DataDirOption = None,
) -> None:  # fmt: skip
    """Delete objects, and everything that they own."""
    meant = target(kubeconfig, data_dir, namespace)
    objects = _meant(what, file, meant)

    async def work(kube: "Kube") -> int:
        failed = 0
        deleted: list[tuple[Kind, str | None, str, str]] = []
        for kind, where, name in objects:
            try:
                found = await kube.get(kind, where, name)
                await kube.delete(kind, where, name)
            except errors.NotFound as error:
                if not ignore_not_found:
                    print(f"error: {exits.words(error)}", file=sys.stderr)
                    failed = exits.code(error)
                continue
            print(f"{full_name(kind, name)} deleted", flush=True)
            deleted.append((kind, where, name, found["metadata"]["uid"]))
        if wait:
            await _gone(kube, deleted, timeout)
        return failed

    if failed := with_kube(meant.kubeconfig, work):
        raise typer.Exit(failed)


def _meant(
    what: list[str] | None, file: list[str] | None, meant: Target
) -> list[tuple[Kind, str | None, str]]:
    if bool(what) == bool(file):
        raise errors.UserError("say what to delete: KIND NAME..., or -f FILE")
    if file:
        return [(d.kind, d.namespace, d.name) for d in reversed(manifests.read(file, meant))]
    found = [(kind, meant.namespace if kind.namespaced else None, name) for kind, name in named(what or [])]
    if any(name is None for _, _, name in found):
        raise errors.UserError("name the objects: deleting all of a kind is not offered")
    return [(kind, where, name) for kind, where, name in found if name is not None]


async def _gone(kube: "Kube", objects: list[tuple[Kind, str | None, str, str]], timeout: float) -> None:
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
