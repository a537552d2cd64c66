"""The whole product for tests: one `slipway up`, quickly trained models, and continuous load."""

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.kubelet.records import PodDirectory
from serving.embedded.kubelet.resources.cgroups import TOP, detect
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.kube import Kube, connect
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from serving.system import processes, procfs
from serving.system.processes import ProcessIdentity
from tests.rig import leaks

PROGRAMS = Path(__file__).parents[2] / "programs"
NAMESPACE = "default"
LABEL_STEP = 100
"""The labels of the n-th model begin at n times this, so that a label identifies its model."""

CREATED = (
    kinds.PROFILING_EXPERIMENT,
    kinds.TRIAL,
    kinds.INFERENCE,
    kinds.CAPACITY_PROFILE,
    kinds.JOB,
    kinds.MODEL_VERSION,
    kinds.MODEL,
)
"""The kinds that tests create, users before what they use; controllers create and delete the others."""

Holds = Callable[[Object], bool]


class LoadResponse(NamedTuple):
    """One line of the load program."""

    client: int
    started: float
    status: int
    arm: str
    version: str
    label: int


RESERVE_SECONDS = 5.0
"""Setting `node.reserve_seconds`: tests wait until ports are free again."""
HEALTHY_SECONDS = 1.0
"""Setting `supervisor.healthy_seconds`: the next test, or file, that kills a component waits for its first
delay, not for one that has doubled with each kill."""
BACKOFF_SECONDS = 0.2
"""Setting `node.backoff_base_seconds`: tests of a file kill the container of one Pod again and again; each
restart waits twice as long."""
SETTINGS = {
    "SLIPWAY_NODE__RESERVE_SECONDS": str(RESERVE_SECONDS),
    "SLIPWAY_NODE__BACKOFF_BASE_SECONDS": str(BACKOFF_SECONDS),
    "SLIPWAY_SUPERVISOR__HEALTHY_SECONDS": str(HEALTHY_SECONDS),
}


SHELL_FILES = 1024
"""The soft limit of open files that a shell has on most systems."""


@contextlib.contextmanager
def soft_limit_of_files(files: int) -> Iterator[None]:
    """Start processes with this soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class LiveStack:
    """One data directory with its `up`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data_dir = DataDir(root / "data")
        self.up: subprocess.Popen[bytes] | None = None

    def start(self) -> "LiveStack":
        """Start `up`; the first picks free ports, later ones use them again."""
        log = self.root / f"up-{time.monotonic_ns()}.log"
        ports = [] if self.data_dir.ports.exists() else ["--port", "0", "--gateway-port", "0"]
        with log.open("wb") as sink, soft_limit_of_files(SHELL_FILES):
            self.up = subprocess.Popen(
                [sys.executable, "-m", "serving.app", "up", "--data-dir", str(self.data_dir.root), *ports],
                stdout=sink,
                stderr=sink,
                start_new_session=True,
                env={**os.environ, **SETTINGS},
            )
        deadline = time.monotonic() + 60
        while "Slipway is up" not in log.read_text():
            assert self.up.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """Stop `up` by SIGTERM, or, if it was killed, its processes by `slipway down`."""
        if self.up is not None and self.up.poll() is None:
            self.up.terminate()
            assert self.up.wait(60) == 0
        elif self.data_dir.root.exists():
            down = [sys.executable, "-m", "serving.app", "down", "--data-dir", str(self.data_dir.root)]
            subprocess.run(down, check=True, timeout=90)

    @property
    def gateway(self) -> str:
        """HOST:PORT of the public listener."""
        return f"127.0.0.1:{json.loads(self.data_dir.ports.read_bytes())['gateway']}"

    def component(self, name: str) -> ProcessIdentity | None:
        """Return the process of a component, or None."""
        record = processes.read_identity(self.data_dir.identity(name))
        return record[0] if record and processes.is_alive(record[0]) else None

    def processes(self, pod: Object) -> tuple[ProcessIdentity, ...]:
        """Return the container shim and the main process of a Pod; an empty tuple if it did not start."""
        runs = PodDirectory(self.data_dir.pods / pod["metadata"]["uid"]).latest()
        return next((run.identities() or () for run in runs), ())

    def places(self, pod: Object) -> list[Path]:
        """Return the directory of a Pod on this machine, and its cgroups if it has any."""
        uid = pod["metadata"]["uid"]
        groups = [Path(root, TOP, uid) for root in detect().layout.roots]
        return [self.data_dir.pods / uid, *(group for group in groups if group.exists())]

    def model(self, number: int) -> str:
        """Return the path of the n-th model, which is trained when it is first asked for."""
        directory = self.root / f"v{number}"
        return str(directory) if directory.exists() else write_model(directory, number)

    def age(self) -> float:
        """Return the seconds since the youngest process of `up` started; 0 if one is missing or stopped."""
        envoy = processes.read_identity(self.data_dir.gateway / "envoy.json")
        running_processes = [*map(self.component, ("up", *COMPONENTS)), envoy and envoy[0]]
        ages = []
        for process in running_processes:
            fields = None if process is None else procfs.stat(process.pid)
            if process is None or fields is None or fields[procfs.STATE] in "ZXTt":
                return 0
            started = process.start_time / os.sysconf("SC_CLK_TCK")
            ages.append(time.clock_gettime(time.CLOCK_BOOTTIME) - started)
        return min(ages)

    async def replicas(self, kube: Kube, inference: str) -> dict[str, tuple[ProcessIdentity, int]]:
        """Return the running Pods of an Inference: name → (process, restarts)."""
        running_pods = [(pod, self.processes(pod)) for pod in await pods(kube, inference)]
        return {pod["metadata"]["name"]: (ids[1], restarts(pod)) for pod, ids in running_pods if ids}

    @contextlib.asynccontextmanager
    async def load(self, inference: str, *, clients: int = 3, rows: int = 1) -> AsyncIterator["SteadyLoad"]:
        """Send requests to an Inference during the block; at its end every request has its response."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAMS / "steady_load.py"),
            f"{self.gateway}/{NAMESPACE}/{inference}",
            "--clients",
            str(clients),
            "--rows",
            str(rows),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        load = SteadyLoad(process)
        try:
            await load.more(20)
            yield load
        finally:
            await load.end()


def restarts(pod: Object) -> int:
    """Return the restart count, 0 if the status does not have the container yet."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


class SteadyLoad:
    """The responses of the load program so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.answers: list[LoadResponse] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.answers.append(LoadResponse(*json.loads(line)))

    async def more(self, count: int, seconds: float = 30) -> float:
        """Wait for `count` more responses; return the time of the call."""
        called, goal = time.monotonic(), len(self.answers) + count
        while len(self.answers) < goal:
            assert not self._reading.done(), "the load program has ended"
            assert time.monotonic() < called + seconds, f"{len(self.answers)} answers, not {goal}"
            await asyncio.sleep(0.02)
        return called

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._reading, 40)
        finally:
            if self._process.returncode is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), 5)
            if self._process.returncode is None:
                self._process.kill()

    @property
    def failed(self) -> list[LoadResponse]:
        """Responses without status 200, or with a label of another model than the named one (`...-<n>`)."""
        return [
            a for a in self.answers if a.status != 200 or not a.version.endswith(f"-{a.label // LABEL_STEP}")
        ]

    def since(self, when: float) -> list[LoadResponse]:
        """Return the responses of requests that began after `when`."""
        return [answer for answer in self.answers if answer.started > when]


def write_model(directory: Path, number: int) -> str:
    """Train a model into a directory and return its path."""
    images, labels = load_digits(return_X_y=True)
    images, labels = images[:300], labels[:300].astype(np.int64) + LABEL_STEP * number
    model = LogisticRegression(max_iter=1000)
    directory.mkdir(parents=True)
    joblib.dump(model.fit(images, labels), directory / "model.joblib")
    (directory / "label").write_text(str(LABEL_STEP * number))
    (directory / "slipway.json").write_text(json.dumps({"framework": "sklearn"}))
    return str(directory)


def version(name: str, path: str) -> Object:
    spec = {"modelName": "tiny", "source": {"path": path}}
    return _object(kinds.MODEL_VERSION, name, spec)


def inference(name: str, arms: list[Object], *, framework: str = "sklearn") -> Object:
    return _object(kinds.INFERENCE, name, {"framework": framework, "predictors": arms})


def predictors(**arms: tuple[str, int]) -> list[Object]:
    """Return predictors of (ModelVersion, weight) by name."""
    return [
        {"name": name, "modelVersion": version_, "trafficWeight": weight}
        for name, (version_, weight) in arms.items()
    ]


def light(arms: list[Object], **more: Any) -> list[Object]:
    """Return the arms with `light_replica.py` as container; `more` are fields of the container."""
    command = [sys.executable, str(PROGRAMS / "light_replica.py")]
    container = {"name": "predictor", "image": "tests/light", "command": command, **more}
    return [{**arm, "template": {"containers": [container]}} for arm in arms]


def _object(kind: kinds.Kind, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


@contextlib.asynccontextmanager
async def deployed(
    stack: LiveStack, name: str, arms: list[Object], *, models: int = 2, framework: str = "sklearn"
) -> AsyncIterator[Kube]:
    """Yield a client; the first call creates the ModelVersions `v-1` to `v-<models>` and the Inference."""
    async with await connect(stack.data_dir.kubeconfig, component="test") as kube:
        if not (await kube.list(kinds.INFERENCE, NAMESPACE)).items:
            for n in range(1, models + 1):
                await kube.create(kinds.MODEL_VERSION, version(f"v-{n}", stack.model(n)))
            await kube.create(kinds.INFERENCE, inference(name, arms, framework=framework))
        yield kube


async def objects(kube: Kube) -> dict[kinds.Kind, list[str]]:
    """Return the names of all objects by kind, without Events, and without those that a new stack has."""
    names_by_kind = {}
    for kind in kinds.ALL:
        if kind not in {kinds.NAMESPACE, kinds.EVENT_V1, kinds.LEASE}:
            items = (await kube.list(kind, NAMESPACE)).items
            if items:
                names_by_kind[kind] = [item["metadata"]["name"] for item in items]
    return names_by_kind


async def empty(stack: LiveStack, seconds: float = 60) -> None:
    """Delete what tests have created, and wait until neither objects nor Pods' processes and files remain."""
    deadline = time.monotonic() + seconds
    async with await connect(stack.data_dir.kubeconfig, component="test") as kube:
        for kind in CREATED:
            for obj in (await kube.list(kind, NAMESPACE)).items:
                await kube.delete(kind, NAMESPACE, obj["metadata"]["name"])
        while remaining := [*(await objects(kube)).items(), *stack.data_dir.pods.iterdir()]:
            assert time.monotonic() < deadline, remaining
            await asyncio.sleep(0.2)


async def pods(kube: Kube, inference_: str) -> list[Object]:
    return (await kube.list(kinds.POD, NAMESPACE, labels=f"{names.INFERENCE_LABEL}={inference_}")).items


async def until(kube: Kube, kind: kinds.Kind, name: str, holds: Holds, seconds: float = 60) -> Object:
    """Poll an object until the condition holds, also while the API is unavailable."""
    deadline = time.monotonic() + seconds
    obj: Object = {}
    while time.monotonic() < deadline:
        with contextlib.suppress(errors.Unavailable, errors.NotFound):
            obj = await kube.get(kind, NAMESPACE, name)
            if holds(obj):
                return obj
        await asyncio.sleep(0.05)
    raise AssertionError(f"{kind.kind} {name} is {obj.get('spec')} {obj.get('status')}")


def ready(obj: Object) -> Object:
    """Return the condition Ready, empty if there is none."""
    return dict(conditions.find((obj.get("status") or {}).get("conditions"), "Ready") or {})


def settled(obj: Object) -> bool:
    """Whether the newest spec is Ready."""
    condition = ready(obj)
    return (
        condition.get("status") == "True" and condition["observedGeneration"] == obj["metadata"]["generation"]
    )


def is_ready(obj: Object) -> bool:
    return ready(obj).get("status") == "True"


def is_at_zero(obj: Object) -> bool:
    """Whether the newest spec is Ready without a replica."""
    return settled(obj) and ready(obj)["reason"] == "ScaledToZero"


def print_logs(stack: LiveStack) -> None:
    """Print the ends of the components' logs; pytest shows them where a test has failed."""
    for log in sorted((stack.data_dir.root / "logs").glob("*.log")):
        print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")


def running(root: Path) -> Iterator[LiveStack]:
    """Yield a stack for a fixture, and stop it at the end."""
    stack = LiveStack(root)
    try:
        yield stack.start()
    finally:
        print_logs(stack)
        stack.stop()


class SharedStack:
    """A stack for one file of tests after the other; each begins with a healthy one without objects."""

    def __init__(self, directories: Callable[[], Path]) -> None:
        """`directories` makes a new directory for each stack that is started."""
        self._directories = directories
        self._stack: LiveStack | None = None

    def lend(self) -> Iterator[LiveStack]:
        """Yield the stack for a fixture, and delete what the tests have created."""
        if self._stack is None:
            directory = self._directories()
            with leaks.shared(directory):
                self._stack = LiveStack(directory).start()
        stack = self._stack
        try:
            yield stack
            asyncio.run(empty(stack))
            _until_components_are_healthy(stack)
        except BaseException:
            self.stop()
            raise
        finally:
            print_logs(stack)

    def stop(self) -> None:
        """Stop the stack, if there is one."""
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.stop()


def _until_components_are_healthy(stack: LiveStack) -> None:
    """Wait until all have run for so long that `up` has forgotten that earlier ones were killed."""
    deadline = time.monotonic() + 60
    while stack.age() <= HEALTHY_SECONDS:
        assert time.monotonic() < deadline, "a component of `up` is missing, or has hung"
        time.sleep(0.1)
