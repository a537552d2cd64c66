"""Kinds that an API gets and loses while a component runs, and kinds that must not be read."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from serving import errors
from serving.kube import OptionalInformer, Watches, optional_informer
from serving.kube.connection.client import WatchEvent
from serving.objects import Object
from serving.resources.kinds import Kind, OptionalKind
from tests.fakes.kube import FakeKube
from tests.rig.control_plane.convergence import running, until

RAY = OptionalKind("ray.io", ("v1", "v1beta1"), "RayJob", "rayjobs")
SPARK = OptionalKind("sparkoperator.k8s.io", ("v1beta2",), "SparkApplication", "sparkapplications")


@pytest.fixture(autouse=True)
def _ask_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_informer, "ASK_SECONDS", 0.005)
    monkeypatch.setattr(optional_informer, "RETRY_SECONDS", 0.005)


class Story:
    """An API, watches of two optional kinds, and what their handlers have seen."""

    def __init__(self, only_namespace: str = "") -> None:
        self.api = FakeKube()
        self.watches = Watches(self.api, only_namespace)
        self.ray, self.spark = (self.watches.optional(kind, lambda obj: obj) for kind in (RAY, SPARK))
        self.seen: list[tuple[str, str]] = []
        self.turns = 0
        self.ray.on_change(lambda before, after: self.seen.append((_name(before), _name(after))))
        self.ray.on_availability(self._count)

    def _count(self) -> None:
        self.turns += 1

    def create(self, kind: Kind, name: str, namespace: str = "default") -> None:
        self.api.add(kind, {"metadata": {"name": name, "namespace": namespace}})


def _name(obj: Object | None) -> str:
    return obj["metadata"]["name"] if obj else ""


def names(informer: OptionalInformer) -> list[str]:
    return sorted(key.name for key in informer.items)


async def test_kind_is_watched_when_it_appears_after_the_start() -> None:
    story = Story()
    story.api.serve(SPARK.at("v1beta2"))
    async with running(story.watches.run()):
        await until(story.spark.synced.is_set)
        assert not story.ray.synced.is_set()
        assert story.ray.obstacle == "the API serves no rayjobs.ray.io"
        assert story.watches.unsynced() == []
        story.api.serve(SPARK.at("v1beta2"), RAY.at("v1"))
        story.create(RAY.at("v1"), "a")
        await until(story.ray.synced.is_set)
        story.create(RAY.at("v1"), "b")
        await until(lambda: names(story.ray) == ["a", "b"])
        assert story.ray.obstacle == ""
        assert story.turns == 2
    assert story.seen == [("", "a"), ("", "b")]


async def test_kind_that_disappears_has_no_objects_and_leaves_the_others_alone() -> None:
    story = Story()
    story.api.serve(SPARK.at("v1beta2"), RAY.at("v1"))
    story.create(RAY.at("v1"), "a")
    async with running(story.watches.run()):
        await until(lambda: names(story.ray) == ["a"])
        story.api.serve(SPARK.at("v1beta2"))
        await until(lambda: not story.ray.synced.is_set())
        assert names(story.ray) == []
        assert story.seen == [("", "a"), ("a", "")]
        story.create(SPARK.at("v1beta2"), "s")
        await until(lambda: names(story.spark) == ["s"])
        story.api.serve(SPARK.at("v1beta2"), RAY.at("v1"))
        await until(lambda: names(story.ray) == ["a"])


async def test_kind_is_watched_in_the_preferred_one_of_its_served_versions() -> None:
    story = Story()
    story.api.serve(RAY.at("v1beta1"))
    async with running(story.watches.run()):
        await until(story.ray.synced.is_set)
        assert story.ray.kind is RAY.at("v1beta1")
        story.api.serve(RAY.at("v1beta1"), RAY.at("v1"))
        await until(lambda: story.ray.kind is RAY.at("v1") and story.ray.synced.is_set())
        story.create(RAY.at("v1"), "a")
        await until(lambda: names(story.ray) == ["a"])


async def test_kind_that_must_not_be_listed_is_logged_once_and_read_when_it_may_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story()
    story.api.serve(SPARK.at("v1beta2"), RAY.at("v1"))
    story.api.unreadable.add("rayjobs")
    asked = count_questions(story.api)
    with caplog.at_level(logging.INFO):
        async with running(story.watches.run()):
            await until(lambda: next(asked) > 5)
            assert story.ray.obstacle == "rayjobs.ray.io is forbidden"
            assert story.spark.synced.is_set()
            assert [r.message for r in caplog.records] == [
                "watch rayjobs.ray.io: rayjobs.ray.io is forbidden"
            ]
            story.api.unreadable.clear()
            await until(story.ray.synced.is_set)
    assert caplog.records[-1].message == "watch rayjobs.ray.io: listed"


def count_questions(api: FakeKube) -> Iterator[int]:
    """Yield how often the API was asked for its groups."""
    answer, questions = api.documents["/apis"], 0

    def groups() -> Object:
        nonlocal questions
        questions += 1
        assert isinstance(answer, dict)
        return answer

    api.documents["/apis"] = groups
    while True:
        yield questions


async def test_kind_is_asked_for_again_when_the_api_was_down() -> None:
    story, failures = Story(), [errors.Unavailable("down"), errors.ApiError(503, "", "starting")]
    story.api.serve(RAY.at("v1"))
    groups = story.api.documents["/apis"]

    def answer() -> Object:
        if failures:
            raise failures.pop()
        assert isinstance(groups, dict)
        return groups

    story.api.documents["/apis"] = answer
    async with running(story.watches.run()):
        assert story.ray.obstacle == ""
        await until(story.ray.synced.is_set)


async def test_kind_is_lost_when_its_watch_finds_no_such_path(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.api.serve(RAY.at("v1"))
    story.create(RAY.at("v1"), "a")
    monkeypatch.setattr(optional_informer, "ASK_SECONDS", 60)

    async def not_found(*_: object, **__: object) -> AsyncIterator[WatchEvent]:
        raise errors.NotFound(404, "NotFound", "the server could not find the requested resource")
        yield

    monkeypatch.setattr(story.api, "watch", not_found)
    async with running(story.watches.run()):
        await until(lambda: bool(story.ray.obstacle))
        assert not story.ray.synced.is_set()
        assert story.ray.is_in_doubt
        assert story.seen == [("", "a"), ("a", "")]


async def test_kind_is_in_doubt_until_the_api_has_answered() -> None:
    story = Story()
    assert story.ray.is_in_doubt
    story.api.serve(RAY.at("v1"))
    story.api.unreadable.add("rayjobs")
    async with running(story.watches.run()):
        await until(lambda: bool(story.ray.obstacle))
        assert not story.ray.is_in_doubt, "it is served, and must not be listed"
        assert not story.spark.is_in_doubt, "it is not served"
        story.api.unreadable.clear()
        await until(story.ray.synced.is_set)
        assert not story.ray.is_in_doubt


async def test_only_the_objects_of_the_watched_namespace_are_read() -> None:
    story = Story("team")
    story.api.serve(RAY.at("v1"))
    for namespace in ("team", "other"):
        story.api.objects["namespaces", "", namespace] = {"metadata": {"name": namespace}}
        story.create(RAY.at("v1"), f"of-{namespace}", namespace)
    async with running(story.watches.run()):
        await until(story.ray.synced.is_set)
        assert names(story.ray) == ["of-team"]


async def test_only_what_is_kept_of_listed_and_watched_objects_is_held() -> None:
    api = FakeKube()
    api.serve(RAY.at("v1"))
    watches = Watches(api)
    ray = watches.optional(RAY, lambda obj: {"metadata": obj["metadata"], "status": {"is": "kept"}})

    def create(name: str) -> None:
        meta = {"name": name, "namespace": "default"}
        api.add(RAY.at("v1"), {"metadata": meta, "spec": {"large": "x"}, "status": {"large": "x"}})

    create("listed")
    async with running(watches.run()):
        await until(ray.synced.is_set)
        create("watched")
        await until(lambda: names(ray) == ["listed", "watched"])
    assert [obj["status"] for obj in ray] == [{"is": "kept"}, {"is": "kept"}]
    assert not any("spec" in obj for obj in ray)
