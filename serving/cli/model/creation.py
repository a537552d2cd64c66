"""Creates a ModelVersion and waits until it is Ready or Failed."""

import asyncio
import re
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from serving import clock, errors
from serving.cli.model import contents
from serving.cli.output import tables
from serving.cli.target import full_name
from serving.planning.models.version import is_finished
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions

if TYPE_CHECKING:
    from serving.kube import Kube

POLL_SECONDS = 0.2

Framework = Annotated[str, typer.Option(metavar="NAME", help="[default: detected from the files]")]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait until the version is ready.")]


def manifest(
    namespace: str, name: str, model: str, source: dict[str, str], framework: str, by: str
) -> dict[str, Any]:
    """Return a ModelVersion to create.

    `source` is `spec.source`, such as {"path": ...} or {"image": ...}. An empty `framework` is detected from
    the files. `by` is `spec.createdBy`, the command that creates the version.
    """
    spec: dict[str, Any] = {"modelName": model, "source": source, "createdBy": by}
    return {
        "apiVersion": kinds.MODEL_VERSION.api_version,
        "kind": kinds.MODEL_VERSION.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec | ({"framework": framework} if framework else {}),
    }


def check_model(name: str) -> None:
    """Check the name of a Model before anything is copied.

    Raises:
        typer.BadParameter: no Model can have it.
    """
    if not re.fullmatch(names.LABEL_PATTERN, name):
        raise typer.BadParameter(
            f"--model must be lowercase letters, digits and '-', at most 63 characters, got {name!r}"
        )


def check_version(name: str) -> None:
    """Check the name of a ModelVersion before anything is copied.

    Raises:
        typer.BadParameter: no ModelVersion can have it.
    """
    if len(name) > names.MAX_SUBDOMAIN or not re.fullmatch(names.SUBDOMAIN_PATTERN, name):
        raise typer.BadParameter(
            f"--version must be lowercase letters, digits, '-' and '.', at most {names.MAX_SUBDOMAIN}"
            f" characters, got {name!r}"
        )


async def create(kube: "Kube", version: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Create a version, wait until it is ready, and return it.

    Progress and contents are printed to standard error, the image of the ready version to standard output.

    Raises:
        errors.AlreadyExists: the name is taken.
        errors.UserError: it has failed, a policy blocks it, or it is not ready after `timeout` seconds; the
            message has the reason.
    """
    created = await kube.create(kinds.MODEL_VERSION, version)
    console, deadline, shown = Console(stderr=True), clock.monotonic() + timeout, ""
    status = console.status("") if console.is_terminal else nullcontext()
    name = full_name(kinds.MODEL_VERSION, created["metadata"]["name"])
    with status as spinner:
        while not is_finished(created):
            words = _condition(created)
            if clock.monotonic() > deadline:
                raise errors.UserError(
                    f"{name} is not ready after {timeout:g} s; the controllers go on: {words}"
                )
            if words != shown and spinner is not None:
                spinner.update(words)
            elif words != shown:
                print(words, file=sys.stderr, flush=True)
            shown = words
            await asyncio.sleep(POLL_SECONDS)
            created = await kube.get(
                kinds.MODEL_VERSION, created["metadata"]["namespace"], created["metadata"]["name"]
            )
    for line in contents.lines(created["status"]):
        print(f"{name} {line}", file=sys.stderr)
    if created["status"]["phase"] != "Ready":
        verb = "is blocked" if created["status"]["phase"] == "Blocked" else "has failed"
        raise errors.UserError(f"{name} {verb}: {_condition(created)}")
    print(f"{name} ready: {created['status']['image']}")
    return created


def _condition(version: dict[str, Any]) -> str:
    ready = conditions.find((version.get("status") or {}).get("conditions"), "Ready") or {}
    message = ready.get("message", "waiting for the controllers")
    return tables.printable(f"{ready.get('reason', 'Pending')}: {message}")
