"""Roll-out and several gateways on an API: all controllers, and gateways with real Envoys, in this process.

Pods run in the API alone, on the played machine of the suite.
"""

import pytest

from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes import conditions
from tests.contracts.traffic.digits_world import (
    REFUSAL,
    STORY_SECONDS,
    DigitsWorld,
    accepted_weights,
    answered_by,
    keep_asking,
)
from tests.objects.contract_objects import eventually
from tests.rig.control_plane.convergence import running

pytestmark = [
    pytest.mark.server_only("the processes of controllers and gateways connect by a kubeconfig"),
    pytest.mark.timeout(180),
]


def served(inference: Object) -> tuple[str, str]:
    """Return the revision of the first predictor that serves, and the one that is being proven."""
    (predictor, *_) = inference["status"]["predictors"]
    return predictor.get("revision", ""), predictor.get("candidateRevision", "")


def names_the_refusal(inference: Object) -> bool:
    """Whether `Ready` is False with the answer that a gateway's probe got from a replica."""
    condition = conditions.find((inference.get("status") or {}).get("conditions"), "Ready") or {}
    return condition.get("status") == "False" and REFUSAL in condition["message"]


async def test_new_revision_gets_the_traffic_once_a_gateway_has_proven_it(world: DigitsWorld) -> None:
    async with world.gateway("a") as url:
        await world.create(world.predictor("stable", "v1", "/first", 100))
        first, _ = served(await world.ready())
        assert await answered_by(url) == "v1"
        answers: list[int] = []
        async with running(keep_asking(url, answers)):
            await world.change(world.predictor("stable", "v2", "/second", 100))
            inference = await world.until(kinds.INFERENCE, names_the_refusal)
            revision, candidate = served(inference)
            assert revision == first
            assert await answered_by(url) == "v1"
            world.replicas.ready.add("/second")
            assert served(await world.ready()) == (candidate, "")
            assert await answered_by(url) == "v2"

            async def is_alone() -> bool:
                return await world.deployments() == {candidate}

            await eventually(is_alone, STORY_SECONDS)
        assert set(answers) == {200}


async def test_two_gateways_acknowledge_a_change_of_weights(world: DigitsWorld) -> None:
    async with world.gateway("a") as first, world.gateway("b") as second:
        await world.create(*world.split(90, 10))
        await world.ready()
        both = {"stable": 90, "canary": 10}
        before = await world.until(
            kinds.ROUTE, lambda route: accepted_weights(route) == {"a": both, "b": both}
        )
        await world.change(*world.split(25, 75))
        both = {"stable": 25, "canary": 75}
        after = await world.until(
            kinds.ROUTE, lambda route: accepted_weights(route) == {"a": both, "b": both}
        )
        assert after["metadata"]["generation"] > before["metadata"]["generation"]
        predictors = (await world.ready())["status"]["predictors"]
        assert {predictor["name"]: predictor["trafficPercent"] for predictor in predictors} == both
        for url in (first, second):
            assert await answered_by(url) in ("v1", "v2")
