"""`slipway logs`: of a Pod, or of all Pods of an Inference, a Job or a Deployment."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import errors
from serving.cli.session import with_kube
from serving.cli.target import DataDirOption, KubeconfigOption, NamespaceOption, kind_of, target
from serving.resources import kinds, names

if TYPE_CHECKING:
    from serving.kube import Kube


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("logs")(logs)


def logs(
    name: Annotated[str, typer.Argument(help="An Inference's name; or pod/NAME, job/NAME, deployment/NAME.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on printing what comes.")] = False,
    previous: Annotated[bool, typer.Option("-p", "--previous", help="Of the run before the last restart.")] = False,
    container: Annotated[str, typer.Option("-c", "--container", help="[default: the first]")] = "",
    predictor: Annotated[str, typer.Option(help="Only this arm of the Inference.")] = "",
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", min=0)] = None,
    namespace: NamespaceOption = None, kubeconfig: KubeconfigOption = None, data_dir: DataDirOption = None,
) -> None:  # fmt: skip
    """Print what replicas and Jobs have written."""
    meant = target(kubeconfig, data_dir, namespace)
    query = {"follow": str(follow).lower(), "previous": str(previous).lower(), "container": container}
    if tail is not None:
        query["tailLines"] = str(tail)

    async def work(kube: "Kube") -> None:
        pods = await _pods(kube, meant.namespace, name, predictor)
        if not pods:
            raise errors.UserError(
                f"{name} has no Pods in namespace {meant.namespace} (yet); see `slipway describe`"
            )
        prefixes = [f"[{pod['metadata']['name']}] " if len(pods) > 1 else "" for pod in pods]
        if follow:
            async with asyncio.TaskGroup() as group:
                for pod, prefix in zip(pods, prefixes, strict=True):
                    group.create_task(_print(kube, pod, query, prefix))
        else:
            for pod, prefix in zip(pods, prefixes, strict=True):
                await _print(kube, pod, query, prefix)

    try:
        with_kube(meant.kubeconfig, work)
    except* errors.SlipwayError as group:
        raise group.exceptions[0] from None


async def _pods(kube: "Kube", namespace: str, name: str, predictor: str) -> list[dict[str, Any]]:
    word, slash, rest = name.partition("/")
    kind = kind_of(word) if slash else kinds.INFERENCE
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
    rest = b""
    async for piece in kube.stream(path, query):
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        for line in lines:
            _write(prefix, line)
    if rest:
        _write(prefix, rest)


def _write(prefix: str, line: bytes) -> None:
    sys.stdout.buffer.write(prefix.encode() + line + b"\n")
    sys.stdout.buffer.flush()
