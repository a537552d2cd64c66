"""Making a ModelVersion and following it until it is Ready or Failed."""

import asyncio
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console

from serving import clock, errors
from serving.cli.target import full_name
from serving.planning.models.version import is_finished
from serving.resources import conditions, kinds

if TYPE_CHECKING:
    from serving.kube import Kube

POLL_SECONDS = 0.2


def version(
    namespace: str, name: str, model: str, source: dict[str, str], framework: str, by: str
) -> dict[str, Any]:
    """Return the ModelVersion to create."""
    spec: dict[str, Any] = {"modelName": model, "source": source, "createdBy": by}
    return {
        "apiVersion": kinds.MODEL_VERSION.api_version,
        "kind": kinds.MODEL_VERSION.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec | ({"framework": framework} if framework else {}),
    }


async def make(kube: "Kube", wanted: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Create a version, print how far it is to standard error, and return it when it is ready.

    Raises:
        errors.AlreadyExists: the name is taken.
        errors.UserError: it has failed, or is not ready after `timeout` seconds; the message says why.
    """
    made = await kube.create(kinds.MODEL_VERSION, wanted)
    console, deadline, shown = Console(stderr=True), clock.monotonic() + timeout, ""
    status = console.status("") if console.is_terminal else nullcontext()
    name = full_name(kinds.MODEL_VERSION, made["metadata"]["name"])
    with status as spinner:
        while not is_finished(made):
            words = _words(made)
            if clock.monotonic() > deadline:
                raise errors.UserError(f"{name} is not ready after {timeout:g} s, and goes on: {words}")
            if words != shown and spinner is not None:
                spinner.update(words)
            elif words != shown:
                print(words, file=sys.stderr, flush=True)
            shown = words
            await asyncio.sleep(POLL_SECONDS)
            made = await kube.get(
                kinds.MODEL_VERSION, made["metadata"]["namespace"], made["metadata"]["name"]
            )
    if made["status"]["phase"] == "Failed":
        raise errors.UserError(f"{name} has failed: {_words(made)}")
    print(f"{name} ready: {made['status']['image']}")
    return made


def _words(found: dict[str, Any]) -> str:
    said = conditions.find((found.get("status") or {}).get("conditions"), "Ready") or {}
    return f"{said.get('reason', 'Pending')}: {said.get('message', 'waiting for the controllers')}"
