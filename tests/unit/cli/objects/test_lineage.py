"""The step of a lineage that is a training job, of any kind."""

import pytest

from serving.cli.objects import lineage
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.objects.training_jobs import NS, RAY_JOB, job, served

RAY = served(RAY_JOB)


async def step(api: FakeKube, uid: str) -> tuple[str, str, str]:
    """Return the step of the job in the lineage of a version that was built from a RayJob."""
    source = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": uid}
    meta: Object = {"name": "v1", "namespace": NS, "uid": "v"}
    spec = {"modelName": "digits", "source": {"job": source}}
    status = {"phase": "Ready", "digest": "sha256:1", "lineage": source}
    api.add(kinds.MODEL_VERSION, {"metadata": meta, "spec": spec, "status": status})
    _, of_job = await lineage.of_version(api, NS, "v1")
    return of_job


@pytest.mark.parametrize(("uid", "note"), [("", ""), ("u2", " (another RayJob has that name now)")])
async def test_lineage_shows_the_kind_and_uid_of_the_job(uid: str, note: str) -> None:
    api = FakeKube()
    api.serve(RAY)
    uid = uid or api.add(RAY, job(RAY_JOB, "train"))["metadata"]["uid"]
    if note:
        api.add(RAY, job(RAY_JOB, "train"))
    assert await step(api, uid) == ("RayJob", "train", f"uid {uid}{note}")


async def test_lineage_says_when_the_job_or_its_kind_is_gone() -> None:
    api = FakeKube()
    assert await step(api, "u1") == ("RayJob", "train", "uid u1 (the API serves no such kind any more)")
    api = FakeKube()
    api.serve(RAY)
    assert await step(api, "u1") == ("RayJob", "train", "uid u1 (deleted since)")
