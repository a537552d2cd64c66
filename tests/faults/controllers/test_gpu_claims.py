"""A revision whose Pods claim a GPU has its ResourceClaimTemplate, whichever write fails."""

import pytest

from serving import errors
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS, inference, predictor, ready_version
from tests.faults.controllers.test_inference_converges import around, control, is_settled, reason
from tests.rig.control_plane.convergence import running, until


class WithoutClaimTemplates(FakeKube):
    """An API without the group resource.k8s.io."""

    async def create(self, kind: Kind, obj: Object) -> Object:
        if kind is kinds.RESOURCE_CLAIM_TEMPLATE:
            raise errors.NotFound(404, "NotFound", "the server has no such resource")
        return await super().create(kind, obj)


def arrange(api: FakeKube) -> FakeKube:
    api.unchecked.add(kinds.DEPLOYMENT)  # claims are a cluster's: the embedded server refuses them
    api.add(kinds.MODEL_VERSION, ready_version("digits-v1", "pytorch"))
    gpu = {"gpu": {"cores": 30, "mechanism": "dra"}}
    api.add(
        kinds.INFERENCE, inference(predictor("stable", "digits-v1", 1, resources=gpu), framework="pytorch")
    )
    return api


@pytest.mark.parametrize("skip", range(4))
@pytest.mark.parametrize("done", [False, True], ids=["refused", "answer-lost"])
async def test_claim_template_exists_once_when_a_write_fails(*, skip: int, done: bool) -> None:
    api = arrange(FakeKube())
    api.fail_next(errors.Unavailable("down"), skip=skip, done=done)
    async with running(around(api), control(api)):
        await until(lambda: is_settled(api, 1), "created")
    (template,) = api.find(kinds.RESOURCE_CLAIM_TEMPLATE)
    (deployment,) = api.find(kinds.DEPLOYMENT)
    assert template["metadata"]["name"] == deployment["metadata"]["name"]


async def test_revision_is_refused_with_the_reason_when_the_api_has_no_claim_templates() -> None:
    api = arrange(WithoutClaimTemplates())
    async with running(around(api), control(api)):
        await until(lambda: reason(api, "stable") == "RevisionRefused")
        (stored,) = api.find(kinds.INFERENCE)
        (arm,) = stored["status"]["predictors"]
        assert "the GPU mechanism dra needs ResourceClaimTemplates" in arm["message"]
        assert not api.find(kinds.DEPLOYMENT)


async def test_claim_template_is_adopted_when_its_orphaned_inference_is_created_again() -> None:
    api = arrange(FakeKube())
    async with running(around(api), control(api)):
        await until(lambda: is_settled(api, 1), "created")
        (stored,) = api.find(kinds.INFERENCE)
        user = api.client("user")
        await user.delete(kinds.INFERENCE, NS, "digits", propagation="Orphan")
        await until(lambda: not api.find(kinds.INFERENCE), "deleted")
        (orphan,) = api.find(kinds.RESOURCE_CLAIM_TEMPLATE)
        assert not orphan["metadata"].get("ownerReferences")
        await user.create(kinds.INFERENCE, {"metadata": {"name": "digits"}, "spec": stored["spec"]})
        await until(lambda: bool(api.find(kinds.INFERENCE)) and is_settled(api, 1), "created again")
    (adopted,) = api.find(kinds.RESOURCE_CLAIM_TEMPLATE)
    uid = api.find(kinds.INFERENCE)[0]["metadata"]["uid"]
    assert [owner["uid"] for owner in adopted["metadata"]["ownerReferences"]] == [uid]
