"""Whether an API serves a kind: asked again until the API answers."""

from serving import errors
from serving.kube import serves
from serving.objects import Object
from serving.resources import kinds
from tests.fakes.kube import FakeKube

BUDGET = kinds.POD_DISRUPTION_BUDGET


async def test_kind_is_served_when_its_group_lists_it() -> None:
    api = FakeKube()
    api.documents["/apis/policy/v1"] = {"resources": [{"name": "poddisruptionbudgets"}]}
    assert await serves(api, BUDGET)
    api.documents["/apis/policy/v1"] = {"resources": [{"name": "poddisruptionbudgets/status"}]}
    assert not await serves(api, BUDGET)


async def test_kind_is_not_served_when_the_api_lacks_its_group() -> None:
    assert not await serves(FakeKube(), BUDGET)


async def test_api_is_asked_again_when_it_is_down_or_still_starting() -> None:
    failures: list[Exception] = [
        errors.Unavailable("down"),
        errors.ApiError(503, "ServiceUnavailable", "starting"),
    ]

    def listed() -> Object:
        if failures:
            raise failures.pop(0)
        return {"resources": [{"name": "poddisruptionbudgets"}]}

    api = FakeKube()
    api.documents["/apis/policy/v1"] = listed
    assert await serves(api, BUDGET)
    assert not failures
