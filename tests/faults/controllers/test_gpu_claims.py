"""A revision whose Pods claim a GPU has its ResourceClaimTemplate, whichever write fails."""

import pytest

from serving import errors
from serving.resources import kinds
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import inference, predictor, ready_version
from tests.faults.controllers.test_controllers_converge import around, control, is_settled
from tests.rig.convergence import running, until


def arrange() -> FakeKube:
    api = FakeKube()
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
    api = arrange()
    api.fail_next(errors.Unavailable("down"), skip=skip, done=done)
    async with running(around(api), control(api)):
        await until(lambda: is_settled(api, 1), "created")
    (template,) = api.find(kinds.RESOURCE_CLAIM_TEMPLATE)
    (deployment,) = api.find(kinds.DEPLOYMENT)
    assert template["metadata"]["name"] == deployment["metadata"]["name"]
