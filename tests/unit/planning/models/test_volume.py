import pytest

from serving.planning.models import volume
from serving.planning.models.volume import VolumeChoice
from serving.resources.kubernetes.cluster_versions import ClusterVersions, NodeVersions


def node(
    kubelet: str = "v1.35.0", runtime: str = "containerd://2.1.4", system: str = "linux"
) -> NodeVersions:
    return NodeVersions(system, kubelet, runtime)


def choice(*nodes: NodeVersions, server: str = "v1.35.2") -> VolumeChoice:
    named = {f"node-{number}": each for number, each in enumerate(nodes)}
    return volume.choose("auto", ClusterVersions(server, named))


@pytest.mark.parametrize("runtime", ["containerd://2.1.0", "containerd://2.2.0-rc.1", "cri-o://1.31.1"])
@pytest.mark.parametrize("kubelet", ["v1.35.0", "v1.36.1-gke.100", "v2.0.0"])
def test_image_volumes_are_chosen_when_every_node_mounts_images(kubelet: str, runtime: str) -> None:
    assert choice(node(), node(kubelet, runtime)) == VolumeChoice("image", "every node mounts images")


@pytest.mark.parametrize(
    ("old", "reason"),
    [
        (node(runtime="containerd://1.6.33"), "containerd 1.6.33: mounts images since 2.1"),
        (node(runtime="containerd://2.0.5"), "containerd 2.0.5: mounts images since 2.1"),
        (node(runtime="cri-o://1.30.9"), "cri-o 1.30.9: mounts images since 1.31"),
        (node(runtime="docker://24.0.7"), "container runtime docker: not known to mount images"),
        (node(runtime=""), "container runtime of no known name: not known to mount images"),
        (node(runtime="containerd://x"), "containerd x: mounts images since 2.1"),
        (node("v1.34.9"), "kubelet v1.34.9: image volumes are on since 1.35"),
        (node(""), "kubelet of no known version: image volumes are on since 1.35"),
    ],
)
def test_a_copy_is_chosen_when_one_node_mounts_no_images(old: NodeVersions, reason: str) -> None:
    assert choice(node(), old, node()) == VolumeChoice("copy", f"node node-1: {reason}")


@pytest.mark.parametrize("server", ["v1.34.0", "v1.9.0", "unknown", ""])
def test_a_copy_is_chosen_when_the_api_server_is_older(server: str) -> None:
    chosen = choice(node(), server=server)
    assert (chosen.source, chosen.reason) == (
        "copy",
        f"API server {server}: image volumes are on since 1.35",
    )


def test_a_copy_is_chosen_when_no_linux_node_is_known() -> None:
    assert choice() == choice(node(system="windows")) == VolumeChoice("copy", "no node is listed")
    unknown = volume.choose("auto", ClusterVersions(problem="nodes is forbidden"))
    assert unknown == VolumeChoice("copy", "the nodes are unknown: nodes is forbidden")


def test_nodes_of_windows_do_not_count() -> None:
    assert choice(node(), node("v1.20.0", "containerd://1.6.0", system="windows")).source == "image"


def test_the_node_of_one_machine_mounts_images_at_any_version() -> None:
    own = node("v1.30.0+slipway.0.1.0", "slipway://0.1.0")
    assert choice(own, server="v1.30.0+slipway.0.1.0") == VolumeChoice("image", "the node mounts images")


@pytest.mark.parametrize("source", ["image", "copy"])
def test_the_setting_comes_before_the_cluster(source: str) -> None:
    for versions in (None, ClusterVersions(problem="x"), ClusterVersions("v1.35.0", {"a": node()})):
        chosen = volume.choose(source, versions)
        assert (chosen.source, chosen.reason, chosen.is_set) == (source, f"models.volume is {source}", True)
