"""`slipway logs`: logs of a Pod, or of all Pods of an Inference, a Job or a Deployment."""

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import errors
from serving.cli.options import with_target
from serving.cli.session import with_kube
from serving.cli.target import Target, kind_of
from serving.resources import kinds, names

if TYPE_CHECKING:
    from serving.kube import Kube

HAVE_PODS = (kinds.INFERENCE, kinds.POD, kinds.JOB, kinds.DEPLOYMENT)


def seconds(text: str) -> int:
    """Return the seconds of a duration in kubectl's form: `90s`, `2m`, `1h30m`.

    Raises:
        errors.UserError: the text has another form.
    """
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    if not text or match is None:
        raise errors.UserError(f"{text!r} is not a duration; write it like 90s, 2m or 1h30m")
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + rest


@with_target
def logs(
    target: Target,
    name: Annotated[str, typer.Argument(help="An Inference's name; or pod/NAME, job/NAME, deployment/NAME.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on printing new lines.")] = False,
    previous: Annotated[
        bool, typer.Option("-p", "--previous", help="Of the run before the last restart.")
    ] = False,
    container: Annotated[
        str, typer.Option("-c", "--container", metavar="NAME", help="[default: the first]")
    ] = "",
    predictor: Annotated[str, typer.Option(metavar="ARM", help="Only this arm of the Inference.")] = "",
    tail: Annotated[int | None, typer.Option(metavar="N", help="Only the last lines.", min=0)] = None,
    since: Annotated[str, typer.Option(metavar="5s|2m|3h", help="Only lines that are not older.")] = "",
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print the time of each line.")] = False,
) -> None:
    """Print what replicas and Jobs have written."""
    query = {
        "follow": str(follow).lower(),
        "previous": str(previous).lower(),
        "timestamps": str(timestamps).lower(),
        "container": container,
        "tailLines": "" if tail is None else str(tail),
        "sinceSeconds": str(seconds(since)) if since else "",
    }

    async def work(kube: "Kube") -> None:
        pods = await _pods(kube, target.namespace, name, predictor)
        if not pods:
            raise errors.UserError(
                f"{name} has no Pods in namespace {target.namespace} (yet); see `slipway describe`"
            )
        prefixes = [f"[{pod['metadata']['name']}] " if len(pods) > 1 else "" for pod in pods]
        if follow:
            async with asyncio.TaskGroup() as group:
                for pod, prefix in zip(pods, prefixes, strict=True):
                    group.create_task(_print(kube, pod, query, prefix))
        else:
            for pod, prefix in zip(pods, prefixes, strict=True):
                await _print(kube, pod, query, prefix)

    failed: Exception | None = None
    try:
        with_kube(target.kubeconfig, work)
    except* (errors.SlipwayError, BrokenPipeError) as group:
        failed = group.exceptions[0]
    if failed is not None:
        raise failed


async def _pods(kube: "Kube", namespace: str, name: str, predictor: str) -> list[dict[str, Any]]:
    word, slash, owner_name = name.partition("/")
    kind = kind_of(word) if slash else kinds.INFERENCE
    if kind not in HAVE_PODS:
        raise errors.UserError(
            f"a {kind.kind} has no logs; name one of {', '.join(k.singular for k in HAVE_PODS)}"
        )
    owner = await kube.get(kind, namespace, owner_name or word)
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
    partial = b""
    async for chunk in kube.stream(path, query):
        lines = (partial + chunk).split(b"\n")
        partial = lines.pop()
        for line in lines:
            _write(prefix, line)
    if partial:
        _write(prefix, partial)


def _first_container(pod: dict[str, Any]) -> str:
    containers = [container["name"] for container in pod["spec"]["containers"]]
    if len(containers) > 1:
        print(f"container {containers[0]} of {', '.join(containers)}; -c names another", file=sys.stderr)
    return str(containers[0])


def _write(prefix: str, line: bytes) -> None:
    sys.stdout.buffer.write(prefix.encode() + line + b"\n")
    sys.stdout.buffer.flush()
