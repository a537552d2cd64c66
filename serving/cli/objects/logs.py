"""`slipway logs`: logs of a Pod, or of all Pods of an Inference, a Job or a Deployment."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from serving import errors
from serving.cli.completion import candidates
from serving.cli.completion.values import Completes
from serving.cli.objects import container_states, owned_pods
from serving.cli.options import with_target
from serving.cli.session import UNLIMITED, with_kube
from serving.cli.target import Target, kind_of
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.formats import label_selector
from serving.resources.kubernetes import conditions

if TYPE_CHECKING:
    from serving.kube import Kube

HAVE_PODS = (kinds.INFERENCE, kinds.POD, kinds.JOB, kinds.DEPLOYMENT)
MOST_FOLLOWED = 100
"""Default of --max-log-requests. Each followed Pod takes a connection in this process, in the API and at its
node, and the usual limit of a process is 1,024 open files."""

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""The control characters C0 (without tab), DEL and C1, and the bidirectional formatting characters of UAX 9,
which would reorder the rest of the line."""


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
    name: Annotated[
        str,
        typer.Argument(help="An Inference's name; or pod/NAME, job/NAME, deployment/NAME."),
        Completes(candidates.log_owners),
    ],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on printing new lines.")] = False,
    previous: Annotated[
        bool, typer.Option("-p", "--previous", help="Of the run before the last restart.")
    ] = False,
    container: Annotated[
        str, typer.Option("-c", "--container", metavar="NAME", help="[default: the first]")
    ] = "",
    predictor: Annotated[
        str,
        typer.Option(metavar="ARM", help="Only this arm of the Inference."),
        Completes(candidates.arms),
    ] = "",
    tail: Annotated[int | None, typer.Option(metavar="N", help="Only the last lines.", min=0)] = None,
    since: Annotated[str, typer.Option(metavar="5s|2m|3h", help="Only lines that are not older.")] = "",
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print the time of each line.")] = False,
    max_log_requests: Annotated[
        int, typer.Option("--max-log-requests", metavar="N", help="Most Pods that -f follows.", min=1)
    ] = MOST_FOLLOWED,
) -> None:
    """Print what replicas and Jobs have written."""
    query = {  # the client sends no empty parameter
        "follow": str(follow).lower(),
        "previous": str(previous).lower(),
        "timestamps": str(timestamps).lower(),
        "container": container,
        "tailLines": "" if tail is None else str(tail),
        "sinceSeconds": str(seconds(since)) if since else "",
    }

    async def work(kube: "Kube") -> None:
        owner, pods = await _pods(kube, target.namespace, name, predictor)
        if not pods:
            raise errors.UserError(_without_pods(name, owner))
        if follow and len(pods) > max_log_requests:
            raise errors.UserError(
                f"{name} has {len(pods)} Pods, and -f follows at most {max_log_requests}: "
                "choose an arm with --predictor, a Pod with pod/NAME, or raise --max-log-requests"
            )
        problems = await _print_all(kube, pods, query, at_once=follow)
        if problems:
            raise errors.UserError("\n".join(problems))

    _run(target, work)


def _run(target: Target, work: Callable[["Kube"], Awaitable[None]]) -> None:
    """Run `work`; of several errors of its tasks, raise the first.

    The connections are unlimited, as each followed log keeps one busy.
    """
    failed: Exception | None = None
    try:
        with_kube(target.kubeconfig, work, pool=UNLIMITED)
    except* (errors.SlipwayError, BrokenPipeError) as group:
        failed = group.exceptions[0]
    if failed is not None:
        raise failed


async def _pods(kube: "Kube", namespace: str, name: str, predictor: str) -> tuple[Object, list[Object]]:
    """Return the owner that the argument `[KIND/]NAME` names, and its Pods; `predictor` selects one arm."""
    word, slash, owner_name = name.partition("/")
    kind = kind_of(word) if slash else kinds.INFERENCE
    if kind not in HAVE_PODS:
        raise errors.UserError(
            f"a {kind.kind} has no logs; name one of {', '.join(k.singular for k in HAVE_PODS)}"
        )
    owner = await kube.get(kind, namespace, owner_name or word)
    if kind is kinds.POD:
        return owner, [owner]
    if kind is kinds.INFERENCE:
        labels = f"{names.INFERENCE_LABEL}={owner['metadata']['name']}"
        if predictor:
            labels += f",{names.PREDICTOR_LABEL}={predictor}"
        return owner, (await kube.list(kinds.POD, namespace, labels=labels)).items
    if kind is kinds.DEPLOYMENT:
        # On a cluster ReplicaSets own the Pods of a Deployment.
        labels = label_selector.text(owner["spec"]["selector"])
        return owner, (await kube.list(kinds.POD, namespace, labels=labels)).items
    return owner, await owned_pods.of(kube, owner)


def _without_pods(name: str, owner: Object) -> str:
    """Return the message for an object without Pods; of a Job that failed, the reason."""
    message = (
        f"{name} has no Pods in namespace {owner['metadata']['namespace']} (yet); see `slipway describe`"
    )
    failed = conditions.find((owner.get("status") or {}).get("conditions"), "Failed") or {}
    if failed.get("status") != "True":
        return message
    return f"{message}\nIt failed: {failed.get('reason')}: {failed.get('message')}"


async def _print_all(
    kube: "Kube", pods: Sequence[Object], query: dict[str, str], *, at_once: bool
) -> list[str]:
    """Print the logs of Pods, at once or one after another; return a reason for each Pod without a log."""
    with_prefixes = [(pod, f"[{pod['metadata']['name']}] " if len(pods) > 1 else "") for pod in pods]
    if at_once:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_print(kube, pod, query, prefix)) for pod, prefix in with_prefixes]
        problems = [task.result() for task in tasks]
    else:
        problems = [await _print(kube, pod, query, prefix) for pod, prefix in with_prefixes]
    return [problem for problem in problems if problem]


async def _print(kube: "Kube", pod: Object, query: dict[str, str], prefix: str) -> str:
    """Print the log of a Pod.

    If there is no log because containers of the Pod are blocked or have failed, return the reason; else an
    empty text.
    """
    meta = pod["metadata"]
    container = query["container"] or _first_container(pod)
    query = {**query, "container": container}
    is_printed = False
    partial = b""
    try:
        async for chunk in kube.stream(kinds.POD.path(meta["namespace"], meta["name"], "log"), query):
            lines = (partial + chunk).split(b"\n")
            partial = lines.pop()
            for line in lines:
                _write(prefix, line)
            is_printed = is_printed or bool(chunk)
    except errors.ApiError as error:
        # The API rejects the log of a container that has not started with 400.
        if error.code != 400 or not _may_be_unstarted(pod, query):
            raise
        problems = await _problems(kube, meta)
        if not problems:
            raise
        return problems
    if partial:
        _write(prefix, partial)
    # A part of a log may be empty although the Pod has a log.
    asks_for_part = query["previous"] == "true" or query["tailLines"] or query["sinceSeconds"]
    return "" if is_printed or asks_for_part else await _problems(kube, meta)


def _may_be_unstarted(pod: Object, query: Mapping[str, str]) -> bool:
    """Whether a container that has not started may be why the API rejects the request for its log.

    False for a container that the Pod does not have, and for the log of an earlier run.
    """
    spec = pod["spec"]
    containers = [each["name"] for each in [*(spec.get("initContainers") or []), *spec["containers"]]]
    return query["previous"] != "true" and query["container"] in containers


async def _problems(kube: "Kube", meta: Object) -> str:
    """Return why containers of the Pod are blocked or have failed; empty if none is, or the Pod is gone.

    `meta` is the metadata of the Pod.
    """
    try:
        pod = await kube.get(kinds.POD, meta["namespace"], meta["name"])
    except errors.NotFound:
        return ""
    problems = container_states.problems(pod)
    return f"Pod {meta['name']} has no log: {'; '.join(problems)}" if problems else ""


def _first_container(pod: Object) -> str:
    """Return the name of the first container; of several, print which one it is."""
    containers = [container["name"] for container in pod["spec"]["containers"]]
    if len(containers) > 1:
        print(f"container {containers[0]} of {', '.join(containers)}; -c names another", file=sys.stderr)
    return str(containers[0])


def shown(line: bytes) -> bytes:
    """Return a line with escapes for the control characters that a terminal obeys.

    Tabs and a carriage return at the end of the line are kept.
    """
    text, carriage_return = line.removesuffix(b"\r"), b"\r" if line.endswith(b"\r") else b""
    return _CONTROL.sub(_escaped, text.decode(errors="backslashreplace")).encode() + carriage_return


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _write(prefix: str, line: bytes) -> None:
    line = shown(line) if sys.stdout.isatty() else line
    sys.stdout.buffer.write(prefix.encode() + line + b"\n")
    sys.stdout.buffer.flush()
