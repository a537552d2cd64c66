"""`slipway apply`: server-side apply of manifests under one field manager."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import errors
from serving.cli import exits
from serving.cli.objects import conflicts, manifests
from serving.cli.options import with_target
from serving.cli.output import tables
from serving.cli.session import with_kube
from serving.cli.target import Target, full_name
from serving.objects import user_metadata
from serving.resources.kubernetes.patch_types import APPLY_PATCH

if TYPE_CHECKING:
    from serving.kube import Kube

MANAGER = "slipway"
"""Field manager of this command; controllers have their own."""


@with_target
def apply(
    target: Target,
    file: Annotated[
        list[str],
        typer.Option(
            "-f",
            "--filename",
            metavar="FILE",
            help="File or directory of manifests; - is standard input.",
        ),
    ],
    force_conflicts: Annotated[
        bool, typer.Option("--force-conflicts", help="Take over fields of other field managers.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the API check everything, and change nothing.")
    ] = False,
) -> None:
    """Create or change the objects of manifests."""
    apply_documents(manifests.read(file, target), target, force=force_conflicts, dry_run=dry_run)


def apply_documents(
    documents: list[manifests.Document], target: Target, *, force: bool = False, dry_run: bool = False
) -> None:
    """Apply objects; exit with the code of the first failure if one fails."""
    query = {"fieldManager": MANAGER, "fieldValidation": "Strict", "force": str(force).lower()}
    if dry_run:
        query["dryRun"] = "All"
    failed = with_kube(target.kubeconfig, lambda kube: _apply_all(kube, documents, query))
    if failed:
        sys.exit(failed)


async def _apply_all(kube: "Kube", documents: list[manifests.Document], query: dict[str, str]) -> int:
    """Apply all in order, also after the API refuses one; return the first refusal's exit code, else 0."""
    failed = 0
    for document in documents:
        try:
            result = await _apply(kube, document, query)
        except errors.ApiError as error:
            message = await _message(kube, document, error)
            print(
                f"error: {document.source}: {document.kind.kind} {document.name}: {message}", file=sys.stderr
            )
            failed = failed or exits.code(error)
        else:
            print(f"{full_name(document.kind, document.name)} {result}", flush=True)
    return failed


async def _apply(kube: "Kube", document: manifests.Document, query: dict[str, str]) -> str:
    path = document.kind.path(document.namespace, document.name)
    try:
        before = await kube.request("GET", path)
    except errors.NotFound:
        before = None
    after = await kube.request("PATCH", path, body=document.body, query=query, content_type=APPLY_PATCH)
    return outcome(before, after) + (" (dry run)" if "dryRun" in query else "")


def outcome(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """Return `created`, `unchanged` or `configured`.

    The resourceVersion does not show which: kube-apiserver keeps it in a dry run, and changes it when only
    the stored form of an object changes, as at the second apply of a Job.
    """
    if before is None:
        return "created"
    return "unchanged" if _applied(before) == _applied(after) else "configured"


def _applied(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without status, resourceVersion and the times of field managers."""
    managed_fields = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in obj["metadata"].get("managedFields") or []
        if entry.get("subresource") != "status"
    ]
    content = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    return {**content, "metadata": user_metadata(obj), "managedFields": managed_fields}


async def _message(kube: "Kube", document: manifests.Document, error: errors.ApiError) -> str:
    if not conflicts.is_of_field_managers(error):
        return exits.words(error)
    try:
        stored = await kube.get(document.kind, document.namespace, document.name)
    except errors.ApiError:  # deleted meanwhile, or a user without the right to read it
        return exits.words(error)
    return tables.printable_lines(conflicts.words(error, stored, document.body))
