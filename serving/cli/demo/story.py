"""The steps of `slipway demo`: from two training Jobs to weighted traffic, then to zero replicas and back.

Uses the tools of every user: `slipway up` as a process, the API through its kubeconfig, and an unmodified
`tritonclient`. Every number is measured in this run; a failed check makes the exit code 1.
"""

from collections.abc import Sequence

import orjson

from serving import clock
from serving.cli import traffic
from serving.cli.demo import scaling
from serving.cli.demo.clients import Clients, started
from serving.cli.demo.console import Story
from serving.cli.demo.objects import NAMESPACE, WAIT_SECONDS, sample, train, until
from serving.cli.demo.report import ArmResult, RequestResult, arms, failures
from serving.cli.demo.stack import Stack, command_name
from serving.cli.objects import lineage
from serving.cli.output import tables
from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.objects import Object
from serving.resources import kinds, names

NAME = "digits"
REQUESTS = 3000
BEFORE_SHIFT = 500
"""Requests with the old weights, so that the shift happens under load."""
AFTER_SHIFT = 2000
"""Requests with the new weights; at 50/50 they give an interval of +-5.5 points."""
SHIFT_REQUESTS = 10 * (BEFORE_SHIFT + AFTER_SHIFT)
"""Requests ordered for the shift, more than the clients send before its end; the others are dropped."""
HEADERS = ("Arm", "Version", "Share", "Expected", "Chance allows", "Requests", "p50 ms", "p99 ms", "Accuracy")


async def tell(story: Story, stack: Stack, *, keep: bool, llm: bool, gpu: str = "") -> None:
    """Run all steps; the caller ends `stack`, also after a cancellation.

    Args:
        story: prints the steps.
        stack: the `slipway up` of the demo, which is started here.
        keep: leave the stack running after the last step.
        llm: with language models instead of classifiers.
        gpu: the name of the GPU that the language models share; empty for the CPU.
    """
    story.step(f"Starting `slipway up` on free ports, data in {stack.where.root}")
    story.doing("waiting for the API and the gateway")
    await stack.start()
    if gpu:
        story.show(f"the Jobs and the replicas share the {gpu}")
    if llm:
        from serving.cli.demo import chat_story  # noqa: PLC0415 needs the extra `llm`

        await chat_story.steps(story, stack.where, on_gpu=bool(gpu))
    else:
        await _steps(story, stack.where)
    if keep:
        stack.keep()
    _print_next_commands(story, stack, *((chat_story.NAME, chat_story.ARM) if llm else (NAME, scaling.ARM)))


async def _steps(story: Story, data_dir: DataDir) -> None:
    base = f"127.0.0.1:{orjson.loads(data_dir.ports.read_bytes())['gateway']}/{NAMESPACE}"
    async with await connect(data_dir.kubeconfig, component="demo", pool=8) as kube:
        await train(story, kube, "jobs.yaml", {"Accuracy": "accuracy"})
        address = f"{base}/{NAME}"
        async with started(address, NAME) as clients:
            await _serve(story, kube)
            await _split(story, kube, address, clients)
            await _shift(story, kube, clients)
        elastic = f"{base}/{scaling.NAME}"
        async with started(elastic, scaling.NAME) as clients:
            await scaling.scale(story, kube, clients)


def _print_next_commands(story: Story, stack: Stack, inference: str, elastic: str) -> None:
    """Print the next commands, which can be copied."""
    if story.failed:
        story.step(f"{len(story.failed)} checks failed")
    slipway, root = command_name(), stack.where.root
    if not stack.kept:
        story.step("Where to look next")
        story.show(
            f"{slipway} demo --keep leaves all this running; README.md has a tour, docs/cli.md every command"
        )
        return
    story.step("All this is left running, to be looked at")
    story.show(
        f"export KUBECONFIG={stack.where.kubeconfig}\n"
        f"{slipway} get\n"
        f"{slipway} describe inference {inference}\n"
        f"{slipway} logs {inference} -f\n"
        f"{slipway} autoscale explain {elastic}\n"
        "kubectl get modelversions,jobs,pods"
    )
    story.step("To stop it, and remove its data")
    story.show(f"{slipway} down --data-dir {root} && rm -r {root}")


async def _serve(story: Story, kube: Kube) -> None:
    (inference,) = sample("inference.yaml")
    story.step("One endpoint over both, 90/10: slipway apply -f manifests/samples/inference.yaml")
    await kube.apply(kinds.INFERENCE, inference, manager="slipway")
    story.doing("starting replicas, and proving each through the gateway before it gets traffic")
    ready = await until(kube, kinds.INFERENCE, NAME, "Ready")
    story.show(tables.text(*tables.overview([ready], namespaced=False)))
    pods = (await kube.list(kinds.POD, NAMESPACE, labels=f"{names.INFERENCE_LABEL}={NAME}")).items
    story.step("From a running replica back to what was trained: slipway describe pod NAME")
    steps = await lineage.of_pod(kube, pods[0])
    story.show(tables.text(lineage.LineageStep._fields, steps))
    proven = {step.kind: step.proof for step in steps}
    complete = (
        proven.get("Image mounted") == proven.get("ModelVersion") and "File" in proven and "Job" in proven
    )
    story.check("the image that the replica mounts is the ModelVersion's, made from that Job", holds=complete)


async def _split(story: Story, kube: Kube, address: str, clients: Clients) -> None:
    story.step(
        f"{REQUESTS} requests of Open Inference Protocol v2 to http://{address}/v2, "
        "by tritonclient, in binary"
    )
    clients.send(REQUESTS)
    await clients.until(REQUESTS, lambda count: story.doing(f"{count} of {REQUESTS}"))
    _show_results(story, clients.rows, await _predictors(kube))


async def _shift(story: Story, kube: Kube, clients: Clients) -> None:
    story.step("Shifting to 50/50 under load: slipway traffic set digits stable=50 canary=50 --wait")
    earlier = len(clients.rows)
    clients.send(SHIFT_REQUESTS)
    await clients.until(
        earlier + BEFORE_SHIFT, lambda count: story.doing(f"{count - earlier} requests before the shift")
    )
    began = clock.monotonic()
    changed = await traffic.shift(kube, NAMESPACE, NAME, {"stable": 50, "canary": 50})
    await traffic.accepted(kube, changed, WAIT_SECONDS)
    ended, answered_by_then = clock.monotonic(), len(clients.rows)
    await clients.until(
        answered_by_then + AFTER_SHIFT,
        lambda count: story.doing(f"{count - answered_by_then} of {AFTER_SHIFT} after the shift"),
    )
    await clients.end()
    rows = clients.rows[earlier:]
    story.show(
        f"from the API write to every gateway's acknowledgement: {1000 * (ended - began):.0f} ms; "
        f"{len(rows)} requests in all, {len(failures(rows))} failed"
    )
    story.check("no request failed during the shift", holds=not failures(rows))
    _show_results(story, [row for row in rows if row.at > ended], await _predictors(kube))


def _show_results(story: Story, rows: Sequence[RequestResult], predictors: Sequence[Object]) -> None:
    """Print the arms' results, and check shares and failures."""
    results = arms(
        rows,
        {p["name"]: p["modelVersion"] for p in predictors},
        {p["name"]: float(p["trafficWeight"]) for p in predictors},
    )
    failed = failures(rows)
    story.show(tables.text(HEADERS, [_cells(arm) for arm in results]))
    if failed:
        story.show(f"first failure: {failed[0]}")
    story.check(f"{len(rows)} requests, {len(failed)} errors", holds=bool(rows) and not failed)
    for arm in results:
        story.check(f"{arm.name}'s share is what its weight says", holds=arm.as_expected)


def _cells(arm: ArmResult) -> list[object]:
    return [
        arm.name,
        arm.version,
        f"{arm.share:.1%}",
        f"{arm.expected:.1%}",
        f"{arm.low:.1%} to {arm.high:.1%}",
        arm.requests,
        f"{arm.p50:.1f}",
        f"{arm.p99:.1f}",
        f"{arm.accuracy:.3f}",
    ]


async def _predictors(kube: Kube) -> list[Object]:
    predictors: list[Object] = (await kube.get(kinds.INFERENCE, NAMESPACE, NAME))["spec"]["predictors"]
    return predictors
