"""Inferences whose arms have a share of a GPU, as the planner sees them."""

from serving.objects import Object
from serving.planning.inference.plan import Ensure
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from tests.fakes.inference_world import InferenceWorld
from tests.fakes.surroundings import predictor


def _arm(name: str, **gpu: object) -> Object:
    return predictor(name, "v1", resources={"gpu": gpu} if gpu else {})


def _deployments(world: InferenceWorld) -> dict[str, Ensure]:
    ensured = [a for a in world.plan().actions if isinstance(a, Ensure) and a.kind is kinds.DEPLOYMENT]
    return {action.object["metadata"]["name"]: action for action in ensured}


def test_impossible_share_fails_its_arm_and_blocks_no_other() -> None:
    world = InferenceWorld(_arm("good"), _arm("bad", memory="99Gi", mechanism="mig", type="A30"))
    deployments = _deployments(world)
    assert len(deployments) == 1
    status = world.plan().status or world.inference["status"]
    reasons = {p["name"]: (p["reason"], p["message"]) for p in status["predictors"]}
    assert reasons["bad"][0] == "GpuShareInvalid"
    assert "resources.gpu.memory: 99Gi" in reasons["bad"][1]
    model = conditions.find(status["conditions"], "ModelReady") or {}
    assert model["status"] == "True", "it is not the model's fault"


def test_claim_template_is_written_before_the_deployment() -> None:
    world = InferenceWorld(_arm("a", cores=30, mechanism="dra"))
    ((name, action),) = _deployments(world).items()
    template = action.claim_template
    assert template is not None
    assert template["metadata"]["name"] == name
    assert template["metadata"]["ownerReferences"][0]["uid"] == "uid-0"
    claims = action.object["spec"]["template"]["spec"]["resourceClaims"]
    assert claims == [{"name": "gpu", "resourceClaimTemplateName": name}]


def test_an_arm_without_a_claim_has_no_template() -> None:
    (action,) = _deployments(InferenceWorld(_arm("a", cores=30))).values()
    assert action.claim_template is None
