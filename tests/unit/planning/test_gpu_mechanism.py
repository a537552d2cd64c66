"""The mechanism of a share of a GPU by the resources of the nodes."""

from typing import Any

import pytest

from serving.planning.gpu import mechanism
from serving.planning.gpu.mechanism import MechanismChoice
from serving.resources.inference import Predictor
from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions

MPS = frozenset({"nvidia.com/gpu"})
HAMI = MPS | {"nvidia.com/gpumem", "nvidia.com/gpucores"}
ACK = frozenset({"aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"})
MIG = frozenset({"nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"})
BOTH = {"memory": "4Gi", "cores": 30}


def node(resources: frozenset[str] = frozenset(), system: str = "linux", **labels: str) -> NodeVersions:
    named = {name.replace("_", "."): value for name, value in labels.items()}
    return NodeVersions(system, "v1.36.0", "containerd://2.1.4", resources, named)


def arm(gpu: dict[str, Any] | None, **selector: str) -> Predictor:
    return Predictor.model_validate(
        {
            "name": "a",
            "modelVersion": "v1",
            "resources": {"gpu": gpu} if gpu else {},
            "template": {"nodeSelector": selector} if selector else None,
        }
    )


def choice(predictor: Predictor, *nodes: NodeVersions, problem: str = "") -> MechanismChoice | None:
    named = {f"node-{number}": each for number, each in enumerate(nodes)}
    return mechanism.choose(predictor, ClusterVersions("v1.36.0", named, problem))


@pytest.mark.parametrize(
    ("gpu", "nodes", "expected", "reason"),
    [
        (BOTH, [node(MPS)], "mps", "nodes have nvidia.com/gpu"),
        (
            BOTH,
            [node(MPS), node(HAMI)],
            "hami",
            "nodes have nvidia.com/gpu and nvidia.com/gpumem and nvidia.com/gpucores",
        ),
        (
            BOTH,
            [node(HAMI), node(ACK, ack_node_gpu_schedule="core_mem")],
            "ack",
            (
                "nodes have aliyun.com/gpu-mem and aliyun.com/gpu-core.percentage"
                " with ack.node.gpu.schedule=core_mem"
            ),
        ),
        (
            BOTH | {"type": "A100-80GB"},
            [node(MPS), node(HAMI), node(MIG | {"nvidia.com/mig-3g.40gb"})],
            "mig",
            "nodes have nvidia.com/mig-3g.40gb",
        ),
    ],
    ids=["mps", "hami", "ack", "mig"],
)
def test_mechanism_is_chosen_when_a_node_has_its_resources(
    gpu: dict[str, Any], nodes: list[NodeVersions], expected: str, reason: str
) -> None:
    chosen = choice(arm(gpu), node(), *nodes)
    assert chosen is not None
    assert (chosen.mechanism, chosen.reason, chosen.is_offered) == (expected, reason, True)


def test_the_first_of_all_mechanisms_is_chosen_in_any_order_of_the_nodes() -> None:
    nodes = [node(MPS), node(HAMI), node(MIG), node(ACK, ack_node_gpu_schedule="core_mem")]
    for rotation in range(len(nodes)):
        rotated = nodes[rotation:] + nodes[:rotation]
        mig = choice(arm({"memory": "4Gi", "cores": 10, "type": "A100-80GB"}), *rotated)
        assert mig is not None
        assert mig.mechanism == "mig"
        others = choice(arm({"memory": "4Gi", "cores": 10}), *rotated)
        assert others is not None
        assert others.mechanism == "ack", "no type, no profile"


def test_one_node_needs_all_resources_of_a_mechanism() -> None:
    chosen = choice(arm(BOTH), node(MPS), node(HAMI - MPS))
    assert chosen is not None
    assert chosen.mechanism == "mps"


def test_nodes_that_cannot_run_the_pods_do_not_count() -> None:
    of_pool = choice(arm(BOTH, pool="a"), node(HAMI, pool="b"), node(MPS, pool="a"))
    assert of_pool == MechanismChoice("mps", "nodes have nvidia.com/gpu with pool=a")
    for other in (node(ACK), node(ACK, ack_node_gpu_schedule="share"), node(ACK, system="windows")):
        chosen = choice(arm(BOTH), other, node(MPS))
        assert chosen is not None
        assert chosen.mechanism == "mps"


def test_the_reason_has_the_resources_that_the_nodes_lack_when_no_node_shares_a_gpu() -> None:
    for nodes in ([], [node()], [node(MPS, system="windows")]):
        assert choice(arm({"memory": "4Gi", "type": "H200"}), *nodes) == MechanismChoice(
            "mps",
            "no node has nvidia.com/mig-1g.18gb (mig), or aliyun.com/gpu-mem with ack.node.gpu.schedule=cgpu"
            " (ack), or nvidia.com/gpu and nvidia.com/gpumem (hami), or nvidia.com/gpu (mps)",
            is_offered=False,
        )
    cores = choice(arm({"cores": 30}))
    assert cores is not None
    assert cores.reason == (
        "no node has nvidia.com/gpu and nvidia.com/gpucores (hami), or nvidia.com/gpu (mps)"
    )


def test_mps_is_assumed_with_the_reason_when_the_nodes_are_unknown() -> None:
    assert choice(arm(BOTH), problem="nodes is forbidden") == MechanismChoice(
        "mps", "the nodes are unknown: nodes is forbidden", is_offered=False
    )


def test_one_machine_has_mps_though_its_node_reports_no_gpu() -> None:
    own = NodeVersions("linux", "v1.30.0+slipway.0.1.0", "slipway://0.1.0")
    assert choice(arm(BOTH), own) == MechanismChoice("mps", "one machine shares its GPU by mps")


def test_the_mechanism_of_the_spec_comes_before_the_nodes() -> None:
    for named in ("mps", "hami", "dra"):
        for nodes in ([], [node(ACK, ack_node_gpu_schedule="core_mem")]):
            chosen = choice(arm(BOTH | {"mechanism": named}), *nodes)
            assert chosen == MechanismChoice(named, f"resources.gpu.mechanism is {named}")  # type: ignore[arg-type]
    assert choice(arm(None), node(MPS)) is None


def test_a_share_without_a_mechanism_needs_the_nodes() -> None:
    assert mechanism.is_open({"gpu": {"cores": 5}})
    assert mechanism.is_open({"gpu": {"cores": 5, "mechanism": "auto"}})
    for resources in (None, {}, {"cpu": "1"}, {"gpu": {"cores": 5, "mechanism": "mps"}}):
        assert not mechanism.is_open(resources)
