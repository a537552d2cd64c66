"""A Job whose attempt has the name of a Pod that it does not own, against an API in memory."""

from serving.resources import kinds
from serving.settings import DEFAULTS
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until
from tests.rig.control_plane.workload_controllers import workloads

JOB = {
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
}


async def test_job_starts_another_attempt_when_its_pod_loses_its_owner() -> None:
    api = FakeKube()
    async with running(workloads(api.client("node"), DEFAULTS)):
        api.add(kinds.JOB, JOB)
        await until(lambda: len(api.find(kinds.POD)) == 1)
        [aside] = api.find(kinds.POD)
        api.change(kinds.POD, "default", aside["metadata"]["name"], {"metadata": {"ownerReferences": None}})
        await until(lambda: len(api.find(kinds.POD)) == 2)
    attempts = [write for write in api.writes if write.startswith("create pods/")]
    assert attempts.count(f"create pods/{aside['metadata']['name']}") == 2
