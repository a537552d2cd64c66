"""The versions of a cluster are read now and then, and kept while the API does not answer."""

import pytest

from serving import clock, errors
from serving.kube import VersionReader
from serving.kube.node_versions import REFRESH_SECONDS
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions
from tests.fakes.kube import FakeKube

INFO = {
    "operatingSystem": "linux",
    "kubeletVersion": "v1.35.0",
    "containerRuntimeVersion": "containerd://2.1.4",
}


class Api:
    """An API in memory with the version of its server."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.kube.unchecked.add(kinds.NODE)
        self.version = "v1.35.1"
        self.failure: Exception | None = None
        self.reads = 0
        self.kube.documents["/version"] = self._answer

    def add(self, name: str, **status: Object) -> None:
        self.kube.add(kinds.NODE, {"metadata": {"name": name}, "status": status})

    def _answer(self) -> Object:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return {"gitVersion": self.version}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def api() -> Api:
    return Api()


async def test_the_versions_are_those_of_the_server_and_of_each_node(api: Api) -> None:
    api.add("a", nodeInfo=INFO)
    api.add("new")
    assert await VersionReader(api.kube).read() == ClusterVersions(
        "v1.35.1",
        {"a": NodeVersions("linux", "v1.35.0", "containerd://2.1.4"), "new": NodeVersions("", "", "")},
    )


async def test_a_node_has_the_extended_resources_of_which_it_has_an_amount_and_its_labels(api: Api) -> None:
    amounts = {"cpu": "8", "nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "0", "hugepages-1Gi": "2"}
    api.kube.add(
        kinds.NODE,
        {"metadata": {"name": "a", "labels": {"pool": "gpus"}}, "status": {"allocatable": amounts}},
    )
    api.kube.add(
        kinds.NODE,
        {"metadata": {"name": "b", "labels": {"pool": "cpus"}}, "status": {"allocatable": {"cpu": "8"}}},
    )
    nodes = (await VersionReader(api.kube).read()).nodes
    assert nodes["a"].resources == {"nvidia.com/gpu"}
    assert (nodes["a"].labels, nodes["b"].labels) == ({"pool": "gpus"}, {})


@pytest.mark.parametrize("gpus", ["10", "0"])
async def test_a_node_has_the_resources_that_hami_registers_when_it_has_gpus(api: Api, gpus: str) -> None:
    annotations = {"hami.io/node-nvidia-register": "GPU-1,10,40960,100,NVIDIA-A100,0,true:"}
    api.kube.add(
        kinds.NODE,
        {
            "metadata": {"name": "a", "annotations": annotations},
            "status": {"allocatable": {"nvidia.com/gpu": gpus}},
        },
    )
    resources = (await VersionReader(api.kube).read()).nodes["a"].resources
    registered = {"nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"}
    assert resources == (registered if gpus == "10" else set())


async def test_a_node_has_no_resources_of_hami_when_its_device_plugin_is_gone(api: Api) -> None:
    annotations = {
        "hami.io/node-nvidia-register": "GPU-1,10,40960,100,NVIDIA-A100,0,true:",
        "hami.io/node-handshake": "Deleted_2026.11.30 00:00:00",
    }
    allocatable = {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}
    api.kube.add(kinds.NODE, {"metadata": {"name": "a", "annotations": annotations}, **allocatable})
    assert (await VersionReader(api.kube).read()).nodes["a"].resources == {"nvidia.com/gpu"}


async def test_the_versions_are_read_again_after_a_while(api: Api, now: list[float]) -> None:
    reader = VersionReader(api.kube)
    await reader.read()
    api.version = "v1.36.0"
    now[0] += REFRESH_SECONDS - 1
    assert (await reader.read()).server == "v1.35.1"
    assert api.reads == 1
    now[0] += 1
    assert (await reader.read()).server == "v1.36.0"


async def test_the_last_versions_are_kept_while_the_api_does_not_answer(api: Api, now: list[float]) -> None:
    reader = VersionReader(api.kube)
    await reader.read()
    now[0] += REFRESH_SECONDS
    api.failure = errors.Unavailable("no answer")
    assert (await reader.read()).server == "v1.35.1"
    await reader.read()
    assert api.reads == 2, "each reconcile would wait for an API that does not answer"


async def test_the_last_versions_are_kept_until_a_second_refusal(api: Api, now: list[float]) -> None:
    reader = VersionReader(api.kube)
    await reader.read()
    for _ in range(2):
        now[0] += REFRESH_SECONDS
        api.failure = errors.Forbidden(403, "Forbidden", "not yet")
        assert (await reader.read()).server == "v1.35.1"
        now[0] += REFRESH_SECONDS
        api.failure, api.version = None, "v1.36.0"
        assert (await reader.read()).server == "v1.36.0"
        api.version = "v1.35.1"
        now[0] += REFRESH_SECONDS
        assert (await reader.read()).server == "v1.35.1"
    api.failure = errors.Forbidden(403, "Forbidden", "nodes is forbidden")
    now[0] += REFRESH_SECONDS
    assert (await reader.read()).server == "v1.35.1"
    now[0] += REFRESH_SECONDS
    assert await reader.read() == ClusterVersions(problem="nodes is forbidden")


async def test_the_last_versions_are_kept_when_a_node_cannot_be_read(api: Api, now: list[float]) -> None:
    reader = VersionReader(api.kube)
    await reader.read()
    api.add("odd", allocatable={"example.com/gpu": "many"})
    now[0] += REFRESH_SECONDS
    assert (await reader.read()).server == "v1.35.1"


async def test_the_first_failure_is_raised_so_that_the_caller_tries_again(api: Api) -> None:
    reader = VersionReader(api.kube)
    api.failure = errors.Unavailable("no answer")
    with pytest.raises(errors.Unavailable):
        await reader.read()
    api.failure = None
    assert (await reader.read()).server == "v1.35.1"


async def test_a_missing_right_is_the_problem_of_the_versions(api: Api) -> None:
    api.failure = errors.Forbidden(403, "Forbidden", "nodes is forbidden")
    assert await VersionReader(api.kube).read() == ClusterVersions(problem="nodes is forbidden")
