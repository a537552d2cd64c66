from pathlib import Path

from serving.embedded.kubelet.resources.cgroup_limits import CgroupLayout
from serving.embedded.kubelet.resources.cgroups import SPARES, TOP, Cgroups
from serving.embedded.pod_spec.resource_limits import ContainerLimits


def test_processes_of_all_containers_are_limited_together_except_of_forked_ones(tmp_path: Path) -> None:
    cgroups = Cgroups(CgroupLayout(pids_v1=str(tmp_path)), pids_limit=7)
    for container in ("first", "second"):
        cgroups.create("uid", container, ContainerLimits())
    assert (tmp_path / TOP / "uid" / "pids.max").read_text() == "7"
    spare = tmp_path / TOP / SPARES / "12"
    spare.mkdir(parents=True)
    cgroups.take([str(spare)], ContainerLimits())
    assert (spare / "pids.max").read_text() == "7"
    assert cgroups.missing == {}
