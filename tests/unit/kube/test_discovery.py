"""Which kinds an API serves, by its discovery."""

from serving import errors
from serving.kube import discovery, serves
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import OptionalKind
from tests.fakes.kube import FakeKube

BUDGET = kinds.POD_DISRUPTION_BUDGET
LISTED = {"name": "poddisruptionbudgets", "verbs": ["get", "list", "watch", "create"]}


async def test_kind_is_served_when_its_group_lists_it() -> None:
    api = FakeKube()
    api.documents["/apis/policy/v1"] = {"resources": [LISTED]}
    assert await serves(api, BUDGET)
    api.documents["/apis/policy/v1"] = {"resources": [{**LISTED, "name": "poddisruptionbudgets/status"}]}
    assert not await serves(api, BUDGET)


async def test_kind_is_not_served_when_none_of_its_objects_can_be_created() -> None:
    api = FakeKube()
    api.documents["/apis/policy/v1"] = {"resources": [{**LISTED, "verbs": ["get", "list"]}]}
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
        return {"resources": [LISTED]}

    api = FakeKube()
    api.documents["/apis/policy/v1"] = listed
    assert await serves(api, BUDGET)
    assert not failures


RAY = OptionalKind("ray.io", ("v1", "v1beta1"), "RayJob", "rayjobs")
CLUSTER = OptionalKind("ray.io", ("v1",), "RayCluster", "rayclusters")
VOLCANO = OptionalKind("batch.volcano.sh", ("v1alpha1",), "Job", "jobs")


async def test_optional_kinds_are_served_in_the_preferred_version_that_has_them() -> None:
    api = FakeKube()
    assert await discovery.served(api, [RAY, VOLCANO]) == {RAY: None, VOLCANO: None}
    api.serve(RAY.at("v1beta1"), CLUSTER.at("v1"))
    assert await discovery.served(api, [RAY, VOLCANO]) == {RAY: RAY.at("v1beta1"), VOLCANO: None}
    api.serve(RAY.at("v1beta1"), RAY.at("v1"), VOLCANO.at("v1alpha1"))
    assert await discovery.served(api, [RAY, VOLCANO]) == {RAY: RAY.at("v1"), VOLCANO: VOLCANO.at("v1alpha1")}


async def test_only_one_request_is_sent_where_no_optional_kind_is_served() -> None:
    asked = []

    class Counted(FakeKube):
        async def raw(self, path: str, *_: object) -> bytes:
            asked.append(path)
            return await super().raw(path)

    api = Counted()
    api.serve(kinds.POD_DISRUPTION_BUDGET)
    await discovery.served(api, [RAY, CLUSTER, VOLCANO])
    assert asked == ["/apis"]


async def test_kind_is_left_out_when_the_api_does_not_answer_for_its_group() -> None:
    def down() -> Object:
        raise errors.ApiError(503, "ServiceUnavailable", "the server behind it is down")

    api = FakeKube()
    api.serve(RAY.at("v1"), RAY.at("v1beta1"), VOLCANO.at("v1alpha1"))
    api.documents["/apis/ray.io/v1"] = down
    assert await discovery.served(api, [RAY, VOLCANO]) == {VOLCANO: VOLCANO.at("v1alpha1")}


async def test_kind_is_named_with_its_plural_when_the_api_has_it() -> None:
    api = FakeKube()
    api.serve(RAY.at("v1"))
    kind = await discovery.kind_of(api, "ray.io/v1", "RayJob")
    assert kind is not None
    assert kind.path("team", "a") == "/apis/ray.io/v1/namespaces/team/rayjobs/a"
    assert await discovery.kind_of(api, "ray.io/v1", "RayCluster") is None
    assert await discovery.kind_of(api, "none.io/v1", "RayJob") is None
