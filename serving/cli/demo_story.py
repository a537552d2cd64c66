"""What `slipway demo` tells: from two training Jobs to weighted traffic, for real, in about a minute.

It uses what every user has: `slipway up` as a process, the API through its kubeconfig, and unmodified
`tritonclient`. Every number is measured in this run, and a check that fails makes the exit code 1.
"""

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib import resources
from typing import Any

import orjson
import yaml

from serving import clock, errors
from serving.cli import lineage, tables, traffic
from serving.cli.demo_report import Arm, Row, arms, failures
from serving.kube import Kube, connect
from serving.resources import conditions, kinds, names
from serving.resources.kinds import Kind
from serving.settings import DataDir

NAMESPACE = "default"
NAME = "digits"
LOADERS = 2
"""Load processes: enough to have requests in flight at once, few enough to leave cores to the models."""
REQUESTS = 3000
AFTER_SHIFT = 2000
"""Requests in each measured stretch; 2,000 at 50/50 give an interval of +-3.7 points."""
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1
STOP_SECONDS = 90.0

Object = dict[str, Any]


class Story:
    """Prints the steps with their times, and remembers which checks failed."""

    def __init__(self) -> None:
        self._started = clock.monotonic()
        self.failed: list[str] = []

    def step(self, text: str) -> None:
        """Begin a step."""
        print(f"\n[{clock.monotonic() - self._started:5.1f} s] {text}", flush=True)

    def show(self, text: str) -> None:
        """Print below the step."""
        print("\n".join(f"          {line}" for line in text.splitlines()), flush=True)

    def check(self, claim: str, *, holds: bool) -> None:
        """Print a claim and whether it holds."""
        self.show(f"{'ok  ' if holds else 'FAIL'} {claim}")
        if not holds:
            self.failed.append(claim)


async def tell(where: DataDir, *, keep: bool) -> bool:
    """Run all steps, and clean up unless all is well and `keep`; returns whether a check failed."""
    story = Story()
    kept = False
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    assert me is not None
    loop.add_signal_handler(signal.SIGTERM, me.cancel)
    up = None
    try:
        story.step(f"Starting `slipway up` on free ports, data in {where.root}")
        up = await _start(where)
        await _steps(story, where)
        kept = keep
        return bool(story.failed)
    finally:
        if not kept:
            story.step("Cleaning up")
            await _clean(up, where)


async def _steps(story: Story, where: DataDir) -> None:
    port = orjson.loads(where.ports.read_bytes())["gateway"]
    async with await connect(where.kubeconfig, component="demo", pool=8) as kube:
        await _train(story, kube)
        await _serve(story, kube)
        address = f"127.0.0.1:{port}/{NAMESPACE}/{NAME}"
        await _split(story, kube, address)
        await _shift(story, kube, address)
    story.step("Where to look next" if not story.failed else f"{len(story.failed)} checks failed")
    story.show(
        "slipway demo --keep              leaves all this running, for the commands below\n"
        f"export KUBECONFIG={where.kubeconfig}\n"
        "slipway get                      every arm, its version, its share\n"
        "slipway describe inference digits\n"
        "slipway traffic set digits stable=0 candidate=100\n"
        "slipway logs digits -f           what the replicas say\n"
        "kubectl get modelversions,jobs,pods    kubectl works too\n"
        f"slipway down --data-dir {where.root}    stops a kept demo"
    )


async def _start(where: DataDir) -> asyncio.subprocess.Process:
    """Start `up` in its own session, so that Ctrl-C reaches it through this program alone."""
    where.logs.mkdir(parents=True, exist_ok=True)
    log = where.logs / "up.log"
    with log.open("wb") as sink:
        up = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serving.app", "up", "--data-dir", str(where.root),
            "--port", "0", "--gateway-port", "0",
            stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
        )  # fmt: skip
    deadline = clock.monotonic() + WAIT_SECONDS
    while b"Slipway is up" not in log.read_bytes():
        if up.returncode is not None or clock.monotonic() > deadline:
            raise errors.UserError(f"slipway up did not start:\n{log.read_text(errors='replace')}")
        await asyncio.sleep(POLL_SECONDS)
    return up


async def _train(story: Story, kube: Kube) -> None:
    jobs = _sample("jobs.yaml")
    story.step("Training two classifiers: kubectl/slipway apply -f manifests/samples/jobs.yaml")
    for job in jobs:
        await kube.apply(
            kinds.JOB, {**job, "metadata": {**job["metadata"], "namespace": NAMESPACE}}, manager="slipway"
        )
    for job in jobs:
        await _until(kube, kinds.JOB, job["metadata"]["name"], "Complete", bad="Failed")
    story.step("Each finished Job became a ModelVersion with an OCI image")
    rows = []
    for job in jobs:
        name = job["metadata"]["annotations"][names.MODEL_VERSION_ANNOTATION]
        status = (await _until(kube, kinds.MODEL_VERSION, name, "Ready"))["status"]
        accuracy = f"{status['metrics'].get('accuracy', float('nan')):.4f}"
        rows.append([name, status["lineage"]["name"], accuracy, status["size"], status["digest"]])
    story.show(tables.text(["ModelVersion", "Job", "Accuracy", "Bytes", "Digest"], rows))


async def _serve(story: Story, kube: Kube) -> None:
    (inference,) = _sample("inference.yaml")
    story.step("One endpoint over both, 90/10: slipway apply -f manifests/samples/inference.yaml")
    metadata = {**inference["metadata"], "namespace": NAMESPACE}
    await kube.apply(kinds.INFERENCE, {**inference, "metadata": metadata}, manager="slipway")
    ready = await _until(kube, kinds.INFERENCE, NAME, "Ready")
    story.show(tables.text(*tables.overview([ready], namespaced=False)))
    pods = (await kube.list(kinds.POD, NAMESPACE, labels=f"{names.INFERENCE_LABEL}={NAME}")).items
    story.step("From a running replica back to what was trained: slipway describe pod NAME")
    steps = await lineage.of_pod(kube, pods[0])
    story.show(tables.text(lineage.Step._fields, steps))
    proven = {step.what: step.proof for step in steps}
    whole = proven.get("Image mounted") == proven.get("ModelVersion") and "File" in proven and "Job" in proven
    story.check("the image that the replica mounts is the ModelVersion's, made from that Job", holds=whole)


async def _split(story: Story, kube: Kube, address: str) -> None:
    story.step(
        f"{REQUESTS} requests of Open Inference Protocol v2 to http://{address}/v2, by tritonclient, in binary"
    )
    rows: list[Row] = []
    async with _load(address, REQUESTS) as outputs:
        await asyncio.gather(*(_collect(output, rows) for output in outputs))
    _judge(story, rows, await _predictors(kube))


async def _shift(story: Story, kube: Kube, address: str) -> None:
    story.step("Shifting to 50/50 under load: slipway traffic set digits stable=50 candidate=50 --wait")
    rows: list[Row] = []
    async with _load(address, 2 * REQUESTS) as outputs:
        collecting = [asyncio.ensure_future(_collect(output, rows)) for output in outputs]
        await _until_sent(rows, 500, collecting)
        before = clock.monotonic()
        changed = await traffic.shift(kube, NAMESPACE, NAME, {"stable": 50, "candidate": 50})
        await traffic.accepted(kube, changed, WAIT_SECONDS)
        after = clock.monotonic()
        await _until_sent(rows, len(rows) + AFTER_SHIFT, collecting)
    story.show(f"from the API write to every gateway's word: {1000 * (after - before):.0f} ms; "
               f"{len(rows)} requests in all, {len(failures(rows))} failed")  # fmt: skip
    for task in collecting:
        task.cancel()
    await asyncio.gather(*collecting, return_exceptions=True)
    story.check("no request failed during the shift", holds=not failures(rows))
    _judge(story, [row for row in rows if row.at > after], await _predictors(kube))


def _judge(story: Story, rows: Sequence[Row], predictors: Sequence[Object]) -> None:
    found = arms(
        rows,
        {p["name"]: p["modelVersion"] for p in predictors},
        {p["name"]: float(p["trafficWeight"]) for p in predictors},
    )
    failed = failures(rows)
    headers = [
        "Arm",
        "Version",
        "Share",
        "Expected",
        "Chance allows",
        "Requests",
        "p50 ms",
        "p99 ms",
        "Accuracy",
    ]
    story.show(tables.text(headers, [_cells(arm) for arm in found]))
    if failed:
        story.show(f"first failure: {failed[0]}")
    story.check(f"{len(rows)} requests, {len(failed)} errors", holds=bool(rows) and not failed)
    for arm in found:
        story.check(f"{arm.name}'s share is what its weight says", holds=arm.as_expected)


def _cells(arm: Arm) -> list[object]:
    return [
        arm.name, arm.version, f"{arm.share:.1%}", f"{arm.expected:.1%}", f"{arm.low:.1%} to {arm.high:.1%}",
        arm.requests, f"{arm.p50:.1f}", f"{arm.p99:.1f}", f"{arm.accuracy:.3f}",
    ]  # fmt: skip


async def _predictors(kube: Kube) -> list[Object]:
    found: list[Object] = (await kube.get(kinds.INFERENCE, NAMESPACE, NAME))["spec"]["predictors"]
    return found


@contextlib.asynccontextmanager
async def _load(address: str, requests: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Run the load processes; they are ended on leaving."""
    processes = []
    try:
        for seed in range(LOADERS):
            processes.append(  # noqa: PERF401 those that started must be ended when a later one does not
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "serving.cli.demo_load", "--url", address, "--model", NAME,
                    "--seed", str(seed), "--requests", str(requests // LOADERS),
                    stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                )
            )  # fmt: skip
        yield [process.stdout for process in processes if process.stdout is not None]
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _collect(output: asyncio.StreamReader, rows: list[Row]) -> None:
    async for line in output:
        rows.append(Row(*orjson.loads(line)))  # noqa: PERF401 rows are read while they come


async def _until_sent(rows: list[Row], count: int, collecting: Sequence["asyncio.Future[None]"]) -> None:
    while len(rows) < count and not all(task.done() for task in collecting):  # noqa: ASYNC110 an Event per row costs more
        await asyncio.sleep(POLL_SECONDS)


async def _until(kube: Kube, kind: Kind, name: str, condition: str, *, bad: str = "") -> Object:
    """Wait for a condition; returns the object.

    Raises:
        errors.UserError: not in time, or the condition `bad` is True.
    """
    deadline = clock.monotonic() + WAIT_SECONDS
    found: Mapping[str, Any] | None = None
    while clock.monotonic() < deadline:
        with contextlib.suppress(errors.NotFound, errors.Unavailable):
            obj = await kube.get(kind, NAMESPACE, name)
            if conditions.is_true(obj, condition):
                return obj
            found = conditions.find((obj.get("status") or {}).get("conditions"), bad or condition)
            if bad and conditions.is_true(obj, bad):
                break
        await asyncio.sleep(POLL_SECONDS)
    said = f"{found.get('reason', '')}: {found.get('message', '')}" if found else "nothing is said about it"
    raise errors.UserError(f"{kind.kind} {name} did not become {condition}: {said}")


def _sample(file: str) -> list[Object]:
    text = (resources.files("serving.cli") / "samples" / file).read_text()
    return list(yaml.safe_load_all(text))


async def _clean(up: asyncio.subprocess.Process | None, where: DataDir) -> None:
    if up is not None and up.returncode is None:
        up.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await up.wait()
        except TimeoutError:
            up.terminate()
            await up.wait()
    await asyncio.to_thread(shutil.rmtree, where.root, True)
