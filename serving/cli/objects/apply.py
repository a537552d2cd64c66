"""`slipway apply`: server-side apply under one name."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from serving import errors
from serving.cli import exits
from serving.cli.objects import conflicts, manifests
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name

if TYPE_CHECKING:
    from serving.kube import Kube

MANAGER = "slipway"
"""Field manager of what users apply with this command, so that controllers' names stay theirs."""
APPLY = "application/apply-patch+yaml"


def apply(files: list[str], meant: Target, *, force: bool, dry_run: bool) -> None:
    """Apply every object of the manifests."""
    documents(manifests.read(files, meant), meant, force=force, dry_run=dry_run)


def documents(found: list[manifests.Document], meant: Target, *, force: bool, dry_run: bool) -> None:
    """Apply these, and exit with the first failure's code where something failed."""
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict", "force": str(force).lower()}
    if dry_run:
        query["dryRun"] = "All"
    failed = with_kube(meant.kubeconfig, lambda kube: _apply_all(kube, found, query))
    if failed:
        raise typer.Exit(failed)


async def _apply_all(kube: "Kube", documents: list[manifests.Document], query: dict[str, str]) -> int:
    """Apply all in order; what fails does not keep the others from being applied."""
    failed = 0
    for document in documents:
        try:
            done = await _apply(kube, document, query)
        except errors.ApiError as error:
            said = await _words(kube, document, error)
            print(f"error: {document.source}: {document.kind.kind} {document.name}: {said}", file=sys.stderr)
            failed = failed or exits.code(error)
        else:
            print(f"{full_name(document.kind, document.name)} {done}", flush=True)
    return failed


async def _apply(kube: "Kube", document: manifests.Document, query: dict[str, str]) -> str:
    path = document.kind.path(document.namespace, document.name)
    try:
        before = await kube.request("GET", path)
    except errors.NotFound:
        before = None
    after = await kube.request("PATCH", path, body=document.body, query=query, content_type=APPLY)
    return outcome(before, after) + (" (dry run)" if "dryRun" in query else "")


def outcome(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Return `created`, `unchanged` or `configured`.

    The resourceVersion does not tell: kube-apiserver leaves it as it was in the answer to a dry run, and moves it
    where only the stored form changes, as at the second apply of a Job.
    """
    if before is None:
        return "created"
    return "unchanged" if _applied(before) == _applied(after) else "configured"


def _applied(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what an apply does not write (status, in which others write meanwhile), the version, and times."""
    meta = {
        key: value
        for key, value in obj["metadata"].items()
        if key not in ("resourceVersion", "managedFields")
    }
    owned = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in obj["metadata"].get("managedFields") or []
        if entry.get("subresource") != "status"
    ]
    rest = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    return {**rest, "metadata": meta, "owned": owned}


async def _words(kube: "Kube", document: manifests.Document, error: errors.ApiError) -> str:
    if not conflicts.of_fields(error):
        return exits.words(error)
    stored = await kube.get(document.kind, document.namespace, document.name)
    return conflicts.words(error, stored, document.body)
