"""Changes of an Inference under load on the whole product: no request fails, and no old object remains."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from serving.system import processes
from tests.programs.light_replica import LINES
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import NAMESPACE, LiveStack, SteadyLoad, light, predictors, settled, until

pytestmark = pytest.mark.slow

BASE = {"stable": ("v-1", 50), "canary": ("v-2", 50)}
CHILDREN = (
    kinds.ROUTE,
    kinds.AUTOSCALER,
    kinds.DEPLOYMENT,
    kinds.SERVICE,
    kinds.ENDPOINT_SLICE,
    kinds.POD,
)


@pytest.fixture
async def kube(stack: LiveStack) -> AsyncIterator[Kube]:
    """A client, once the Inference `light` serves the arms of BASE and has no other children."""
    arms = light(predictors(**BASE))
    async with stacks.deployed(stack, "light", arms, models=3, framework="custom") as client:
        await set_predictors(client, arms)
        await until(client, kinds.INFERENCE, "light", settled)
        await until_children(client, "light", count=2)
        yield client


async def set_predictors(kube: Kube, arms: list[Object], name: str = "light") -> None:
    await kube.patch(kinds.INFERENCE, NAMESPACE, name, {"spec": {"predictors": arms}})


async def until_served(kube: Kube, load: SteadyLoad, **arms: tuple[str, int]) -> None:
    """Wait until the arms are Ready, and check that all responses are of these arms and versions."""
    await until(kube, kinds.INFERENCE, "light", settled)
    sent = await load.more(60)
    expected = {(name, version) for name, (version, weight) in arms.items() if weight}
    assert {(response.arm, response.version) for response in load.since(sent)} == expected


async def children(kube: Kube, inference: str, kind: kinds.Kind) -> list[str]:
    """Return the names of the children of a kind; EndpointSlices are matched by their Services."""
    items = (await kube.list(kind, NAMESPACE)).items
    label = names.SERVICE_NAME_LABEL if kind is kinds.ENDPOINT_SLICE else names.INFERENCE_LABEL
    prefix = f"{inference}-" if kind is kinds.ENDPOINT_SLICE else inference
    return [
        o["metadata"]["name"]
        for o in items
        if str((o["metadata"].get("labels") or {}).get(label)).startswith(prefix)
    ]


async def until_children(kube: Kube, inference: str, *, count: int) -> None:
    """Wait until the Inference has `count` children of every kind, and one Route (none if `count` is 0)."""
    expected = {kind.plural: min(count, 1) if kind is kinds.ROUTE else count for kind in CHILDREN}
    deadline = asyncio.get_running_loop().time() + 20
    while True:
        remaining = {kind.plural: await children(kube, inference, kind) for kind in CHILDREN}
        if {plural: len(child_names) for plural, child_names in remaining.items()} == expected:
            return
        assert asyncio.get_running_loop().time() < deadline, remaining
        await asyncio.sleep(0.1)


def reasons(obj: Object) -> dict[str, str]:
    """Return condition → reason of conditions that are not True."""
    condition_list = (obj.get("status") or {}).get("conditions") or []
    return {c["type"]: c["reason"] for c in condition_list if c["status"] != "True"}


def message(obj: Object) -> str:
    """Return the message of `Ready`."""
    condition = conditions.find((obj.get("status") or {}).get("conditions"), "Ready") or {}
    return str(condition.get("message", ""))


class Streams:
    """A client of long responses, and of short requests, one after the other."""

    def __init__(self, stack: LiveStack, inference: str, session: aiohttp.ClientSession) -> None:
        self._url = f"http://{stack.gateway}/{NAMESPACE}/{inference}"
        self._session = session
        self._begun = 0
        self.statuses: list[int] = []

    async def begin(self, count: int = 6) -> asyncio.Future[list[bytes]]:
        """Start streams; return, once all have begun, a future of their last lines."""
        last_lines = asyncio.gather(*(self._read() for _ in range(count)))
        async with asyncio.timeout(20):
            while self._begun < count and not last_lines.done():
                await asyncio.sleep(0.01)
        return last_lines

    async def _read(self) -> bytes:
        async with self._session.post(f"{self._url}/stream") as response:
            assert response.status == 200
            await response.content.readline()
            self._begun += 1
            return (await response.content.read()).splitlines()[-1]

    async def send_requests(self) -> None:
        while True:
            async with self._session.get(f"{self._url}/v2/health/ready") as response:
                self.statuses.append(response.status)


LAST_LINE = b"line %d" % (LINES - 1)


async def test_no_request_fails_when_the_model_version_of_the_real_runtime_changes(
    stack: LiveStack, kube: Kube
) -> None:
    await kube.create(kinds.INFERENCE, stacks.inference("real", predictors(main=("v-1", 1))))
    await until(kube, kinds.INFERENCE, "real", settled)
    async with stack.load("real") as load:
        await set_predictors(kube, predictors(main=("v-2", 1)), "real")
        await until(kube, kinds.INFERENCE, "real", settled)
        sent = await load.more(30)
        assert {response.version for response in load.since(sent)} == {"v-2"}
        await until_children(kube, "real", count=1)
    assert load.failed == []
    await kube.delete(kinds.INFERENCE, NAMESPACE, "real")


async def test_changed_model_version_keeps_the_other_arm_and_removes_the_old_revision(
    stack: LiveStack, kube: Kube
) -> None:
    old_replicas = await stack.replicas(kube, "light")
    changed = {"stable": ("v-3", 50), "canary": ("v-2", 50)}
    async with stack.load("light") as load, aiohttp.ClientSession() as session:
        last_lines = await Streams(stack, "light", session).begin()
        await set_predictors(kube, light(predictors(**changed)))
        await until_served(kube, load, **changed)
        assert set(await last_lines) == {LAST_LINE}
        await until_children(kube, "light", count=2)
    assert load.failed == []
    new_replicas = await stack.replicas(kube, "light")
    assert [name for name in new_replicas if new_replicas[name] == old_replicas.get(name)] == [
        name for name in old_replicas if "canary" in name
    ]


async def test_no_request_fails_when_predictors_are_added_renamed_and_removed(
    stack: LiveStack, kube: Kube
) -> None:
    added = {"stable": ("v-1", 40), "canary": ("v-2", 40), "third": ("v-3", 20)}
    renamed = {"stable": ("v-1", 40), "other": ("v-2", 40), "third": ("v-3", 20)}
    removed = {"other": ("v-2", 1)}
    async with stack.load("light") as load:
        for arms in (added, renamed, removed):
            await set_predictors(kube, light(predictors(**arms)))
            await until_served(kube, load, **arms)
        await until_children(kube, "light", count=1)
        assert await children(kube, "light", kinds.AUTOSCALER) == ["light-other"]
    assert load.failed == []


@pytest.mark.parametrize(
    ("container", "reason", "words", "mended"),
    [
        pytest.param(
            {"command": ["/bin/sh", "-c", "exit 3"]},
            "CrashLoopBackOff",
            "exit code 3",
            {**BASE, "canary": ("v-3", 50)},
            id="crashing",
        ),
        pytest.param(
            {
                "image": f"{names.RUNTIME_IMAGE_PREFIX}sklearn",
                "command": [
                    "/usr/bin/env",
                    f"{names.MODEL_FILES_DIGEST_ENV}=sha256:{'0' * 64}",
                    sys.executable,
                    "-m",
                    "serving.runtimes.sklearn.server",
                ],
                "terminationMessagePolicy": "FallbackToLogsOnError",
            },
            "DigestMismatch",
            "ended with exit code 1: DigestMismatch: files.json: must be ",
            BASE,
            id="other-model",
        ),
        pytest.param(
            {"command": ["/bin/sleep", "600"]},
            "ReplicasNotReady",
            "0 of 1 replicas ready",
            BASE,
            id="never-ready",
        ),
        pytest.param({"comand": "x"}, "RevisionRefused", "comand", BASE, id="refused"),
    ],
)
async def test_failing_revision_gets_no_request_and_reports_the_reason(
    stack: LiveStack,
    kube: Kube,
    container: Object,
    reason: str,
    words: str,
    mended: dict[str, tuple[str, int]],
) -> None:
    old_replicas = await stack.replicas(kube, "light")
    stable, failing = predictors(**BASE)

    def is_reported(obj: Object) -> bool:
        condition = conditions.find((obj.get("status") or {}).get("conditions"), "Ready") or {}
        return (
            condition.get("status") == "False"
            and condition["observedGeneration"] == obj["metadata"]["generation"]
            and condition["reason"] == reason
            and words in condition["message"]
        )

    async with stack.load("light") as load:
        await set_predictors(kube, [*light([stable]), *light([failing], **container)])
        await until(kube, kinds.INFERENCE, "light", is_reported)
        assert old_replicas.items() <= (await stack.replicas(kube, "light")).items()
        sent = await load.more(60)
        assert {response.arm for response in load.since(sent)} == set(BASE)
        await set_predictors(kube, light(predictors(**mended)))
        await until_served(kube, load, **mended)
        await until_children(kube, "light", count=2)
    assert load.failed == []


def job(source: Path) -> Object:
    """Return a Job that outputs `source` as the ModelVersion `v-4`, once `source` has the file `go`."""
    script = 'until [ -e "$IN/go" ]; do sleep 0.05; done; cp "$IN"/* "$SLIPWAY_OUTPUT_DIR"'
    container = {
        "name": "train",
        "image": "tests/train",
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": "IN", "value": "/in"}, {"name": names.OUTPUT_DIR_ENV, "value": "/out"}],
        "volumeMounts": [{"name": "in", "mountPath": "/in"}, {"name": "out", "mountPath": "/out"}],
    }
    volumes = [{"name": "in", "hostPath": {"path": str(source)}}, {"name": "out", "emptyDir": {}}]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    annotations = {names.MODEL_ANNOTATION: "tiny", names.MODEL_VERSION_ANNOTATION: "v-4"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": NAMESPACE, "annotations": annotations},
        "spec": {"template": {"spec": pod}},
    }


async def test_predictor_waits_for_its_model_version_and_then_starts(stack: LiveStack, kube: Kube) -> None:
    source = Path(stacks.write_model(stack.root / "v4", 4))
    with_new = {**BASE, "new": ("v-4", 100)}
    async with stack.load("light") as load:
        await set_predictors(kube, light(predictors(**with_new)))
        await until(
            kube, kinds.INFERENCE, "light", lambda o: reasons(o).get("ModelReady") == "ModelVersionNotFound"
        )
        await kube.create(kinds.JOB, job(source))
        waiting = stacks.version("v-4", "") | {
            "spec": {"modelName": "tiny", "source": {"job": {"name": "train"}}}
        }
        await kube.create(kinds.MODEL_VERSION, waiting)
        await until(kube, kinds.INFERENCE, "light", lambda o: "Job train has not completed yet" in message(o))
        obj = await kube.get(kinds.INFERENCE, NAMESPACE, "light")
        assert reasons(obj)["Ready"] == reasons(obj)["ModelReady"] == "ModelVersionBuilding"
        sent = await load.more(30)
        assert {response.arm for response in load.since(sent)} == set(BASE)
        (source / "go").touch()
        await until_served(kube, load, **with_new)
    assert load.failed == []


async def envoy_knows(stack: LiveStack, name: str) -> bool:
    """Whether Envoy's configuration or its clusters contain the name."""
    async with aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(stack.data_dir.admin_socket))
    ) as session:
        for path in ("config_dump", "clusters"):
            async with session.get(f"http://admin/{path}") as response:
                if name in await response.text():
                    return True
    return False


async def test_inference_deleted_in_mid_stream_finishes_its_responses(stack: LiveStack, kube: Kube) -> None:
    arms = light(predictors(a=("v-1", 1), b=("v-2", 1)))
    await kube.create(kinds.INFERENCE, stacks.inference("leaving", arms, framework="custom"))
    await until(kube, kinds.INFERENCE, "leaving", settled)
    pods = await stacks.pods(kube, "leaving")
    replicas = [process for pod in pods for process in stack.processes(pod)]
    paths = [path for pod in pods for path in stack.places(pod)]
    assert await envoy_knows(stack, "leaving")

    async with stack.load("light") as load, aiohttp.ClientSession() as session:
        client = Streams(stack, "leaving", session)
        last_lines = await client.begin()
        probe = asyncio.create_task(client.send_requests())
        await kube.delete(kinds.INFERENCE, NAMESPACE, "leaving")
        assert set(await last_lines) == {LAST_LINE}
        probe.cancel()
        await until_children(kube, "leaving", count=0)
    # 200 until the Route is deleted, then 404.
    served = client.statuses.count(200)
    assert client.statuses == [200] * served + [404] * (len(client.statuses) - served)
    assert load.failed == []

    with pytest.raises(errors.NotFound):
        await kube.get(kinds.INFERENCE, NAMESPACE, "leaving")
    assert not await envoy_knows(stack, "leaving")
    assert [path for path in paths if path.exists()] == []
    assert [process for process in replicas if processes.is_alive(process)] == []
