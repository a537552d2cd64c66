"""The facts that the workload controllers read of a Pod."""

from serving.embedded.workloads import pods
from serving.objects import Object


def test_restarts_are_those_of_all_containers_when_a_pod_has_init_containers() -> None:
    pod: Object = {
        "metadata": {"name": "a"},
        "status": {
            "initContainerStatuses": [{"name": "copy", "restartCount": 3}],
            "containerStatuses": [{"name": "main", "restartCount": 1}],
        },
    }
    assert pods.read(pod).restarts == 4
