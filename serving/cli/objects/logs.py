"""`slipway logs`: of a Pod, or of all Pods of an Inference, a Job or a Deployment."""

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Any

from serving import errors
from serving.cli.session import with_kube
from serving.cli.target import Target, kind_of
from serving.resources import kinds, names

if TYPE_CHECKING:
    from serving.kube import Kube

HAVE_PODS = (kinds.INFERENCE, kinds.POD, kinds.JOB, kinds.DEPLOYMENT)


def seconds(text: str) -> int:
    """Parse a duration as kubectl has it: `90s`, `2m`, `1h30m`.

    Raises:
        errors.UserError: it has another form.
    """
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    if not text or found is None:
        raise errors.UserError(f"{text!r} is no duration; write it like 90s, 2m or 1h30m")
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + rest


def logs(name: str, meant: Target, query: dict[str, str], predictor: str) -> None:
    """Print the logs of all Pods that `name` means; `query` goes to the API as it is."""

    async def work(kube: "Kube") -> None:
        pods = await _pods(kube, meant.namespace, name, predictor)
        if not pods:
            raise errors.UserError(
                f"{name} has no Pods in namespace {meant.namespace} (yet); see `slipway describe`"
            )
        prefixes = [f"[{pod['metadata']['name']}] " if len(pods) > 1 else "" for pod in pods]
        if query["follow"] == "true":
            async with asyncio.TaskGroup() as group:
                for pod, prefix in zip(pods, prefixes, strict=True):
                    group.create_task(_print(kube, pod, query, prefix))
        else:
            for pod, prefix in zip(pods, prefixes, strict=True):
                await _print(kube, pod, query, prefix)

    failed: Exception | None = None
    try:
        with_kube(meant.kubeconfig, work)
    except* (errors.SlipwayError, BrokenPipeError) as group:
        failed = group.exceptions[0]
    if failed is not None:
        raise failed


async def _pods(kube: "Kube", namespace: str, name: str, predictor: str) -> list[dict[str, Any]]:
    word, slash, rest = name.partition("/")
    kind = kind_of(word) if slash else kinds.INFERENCE
    if kind not in HAVE_PODS:
        raise errors.UserError(
            f"a {kind.kind} has no logs; name one of {', '.join(k.singular for k in HAVE_PODS)}"
        )
    owner = await kube.get(kind, namespace, rest or word)
    if kind is kinds.POD:
        return [owner]
    if kind is kinds.INFERENCE:
        labels = f"{names.INFERENCE_LABEL}={owner['metadata']['name']}"
        if predictor:
            labels += f",{names.PREDICTOR_LABEL}={predictor}"
        return (await kube.list(kinds.POD, namespace, labels=labels)).items
    uid = owner["metadata"]["uid"]
    pods = (await kube.list(kinds.POD, namespace)).items
    return [
        p for p in pods if any(ref.get("uid") == uid for ref in p["metadata"].get("ownerReferences") or [])
    ]


async def _print(kube: "Kube", pod: dict[str, Any], query: dict[str, str], prefix: str) -> None:
    path = kinds.POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"], "log")
    query = {**query, "container": query["container"] or _first_container(pod)}
    rest = b""
    async for piece in kube.stream(path, query):
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        for line in lines:
            _write(prefix, line)
    if rest:
        _write(prefix, rest)


def _first_container(pod: dict[str, Any]) -> str:
    found = [container["name"] for container in pod["spec"]["containers"]]
    if len(found) > 1:
        print(f"container {found[0]} of {', '.join(found)}; -c names another", file=sys.stderr)
    return str(found[0])


def _write(prefix: str, line: bytes) -> None:
    sys.stdout.buffer.write(prefix.encode() + line + b"\n")
    sys.stdout.buffer.flush()
