"""A revision keeps its GPU mechanism, and new ones get that of the nodes."""

from typing import Any

from serving.objects import Object
from serving.planning.gpu import pod
from serving.planning.models.volume import VolumeChoice
from serving.resources import names
from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions
from tests.fakes.inference_world import InferenceWorld
from tests.fakes.surroundings import predictor

MPS = frozenset({"nvidia.com/gpu"})
HAMI = MPS | {"nvidia.com/gpumem", "nvidia.com/gpucores"}


def cluster(*resources: frozenset[str]) -> ClusterVersions:
    nodes = {
        f"n{number}": NodeVersions("linux", "v1.36.0", "containerd://2.1.4", each)
        for number, each in enumerate(resources)
    }
    return ClusterVersions("v1.36.0", nodes)


def arm(version: str = "v1", **gpu: Any) -> Object:
    return predictor("a", version, resources={"gpu": {"memory": "4Gi", "cores": 30, **gpu}})


def world_of(nodes: ClusterVersions, *, ready: bool = True, **gpu: Any) -> InferenceWorld:
    """Return a world whose only predictor was created with these nodes, and serves if it is ready."""
    world = InferenceWorld(arm(**gpu))
    world.seen["cluster"] = nodes
    if not ready:
        world.broken.add("v1")
    world.settle()
    return world


def change(world: InferenceWorld, nodes: ClusterVersions) -> None:
    world.seen["cluster"] = nodes
    world.settle()


def mechanisms(world: InferenceWorld) -> dict[str, str]:
    """Return the mechanism of each Deployment by its ModelVersion."""
    templates = [deployment["spec"]["template"] for deployment in world.deployments.values()]
    return {
        template["metadata"]["annotations"][names.MODEL_VERSION_ANNOTATION]: pod.annotated(template)[
            "mechanism"
        ]
        for template in templates
    }


def gpu_status(world: InferenceWorld) -> Object:
    status: Object = world.inference["status"]["predictors"][0]["gpu"]
    return status


def test_a_new_revision_gets_the_mechanism_of_the_nodes() -> None:
    assert mechanisms(world_of(cluster(MPS))) == {"v1": "mps"}
    assert mechanisms(world_of(cluster(HAMI))) == {"v1": "hami"}


def test_the_revision_of_a_chosen_mechanism_is_that_of_the_same_mechanism_in_the_spec() -> None:
    for nodes, named in ((cluster(MPS), "mps"), (cluster(HAMI), "hami"), (cluster(), "mps")):
        assert set(world_of(nodes).deployments) == set(world_of(nodes, mechanism=named).deployments)


def test_a_revision_that_serves_keeps_its_mechanism_when_the_nodes_change() -> None:
    world = world_of(cluster(MPS))
    revisions = set(world.deployments)
    for nodes in (cluster(HAMI), cluster(), ClusterVersions(problem="x"), cluster(MPS)):
        change(world, nodes)
        assert set(world.deployments) == revisions
    assert mechanisms(world) == {"v1": "mps"}


def test_a_revision_of_the_former_default_serves_on_when_the_mechanism_becomes_auto() -> None:
    world = world_of(cluster(HAMI), mechanism="mps")
    revisions = set(world.deployments)
    world.edit(arm())
    world.settle()
    assert set(world.deployments) == revisions


def test_a_revision_keeps_its_mechanism_and_its_volume_when_both_would_be_others() -> None:
    world = world_of(cluster(MPS))
    revisions = set(world.deployments)
    world.volume = VolumeChoice("copy", "node a: containerd 1.6.33: mounts images since 2.1")
    change(world, cluster(HAMI))
    assert set(world.deployments) == revisions


def test_the_next_revision_gets_the_new_mechanism_when_the_nodes_have_changed() -> None:
    world = world_of(cluster(MPS))
    change(world, cluster(HAMI))
    world.edit(arm("v2"))
    world.settle()
    assert mechanisms(world) == {"v2": "hami"}


def test_a_revision_that_never_became_ready_is_replaced_when_nodes_have_another_mechanism() -> None:
    world = world_of(cluster(), ready=False)
    assert mechanisms(world) == {"v1": "mps"}
    change(world, cluster(HAMI))
    assert mechanisms(world) == {"v1": "hami"}


def test_a_candidate_keeps_its_mechanism_while_no_node_has_resources_of_any() -> None:
    world = world_of(cluster(HAMI), ready=False)
    revisions = set(world.deployments)
    for nodes in (cluster(), ClusterVersions(problem="x")):
        change(world, nodes)
        assert set(world.deployments) == revisions


def test_a_mechanism_in_the_spec_gives_the_revision_a_successor() -> None:
    world = world_of(cluster(HAMI))
    world.edit(arm(mechanism="mps"))
    world.settle()
    assert mechanisms(world) == {"v1": "mps"}
    assert "gpu" not in world.inference["status"]["predictors"][0]


def test_the_status_has_the_mechanism_and_its_reason() -> None:
    world = world_of(cluster(HAMI))
    reason = "nodes have nvidia.com/gpu and nvidia.com/gpumem and nvidia.com/gpucores"
    assert gpu_status(world) == {"mechanism": "hami", "message": reason}
    change(world, cluster(MPS))
    assert gpu_status(world) == {
        "mechanism": "hami",
        "message": "kept until the next revision, which gets mps (nodes have nvidia.com/gpu)",
    }


def test_the_status_has_the_resources_that_the_nodes_lack_when_no_node_shares_a_gpu() -> None:
    world = world_of(cluster(frozenset()), ready=False)
    assert gpu_status(world)["mechanism"] == "mps"
    assert gpu_status(world)["message"].startswith("no node has aliyun.com/gpu-mem and ")


def test_the_nodes_are_read_again_only_while_no_node_has_resources_of_any_mechanism() -> None:
    assert world_of(cluster(), ready=False).plan().waits_for_gpu_nodes
    assert not world_of(cluster(MPS)).plan().waits_for_gpu_nodes
    assert not world_of(cluster(), mechanism="mps").plan().waits_for_gpu_nodes
