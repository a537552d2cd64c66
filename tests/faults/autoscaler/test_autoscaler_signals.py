"""Changes of load and failed readings: the count and the status that the controller writes."""

import asyncio
import contextlib
import datetime as dt
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest

from autoscaler import controller, other_writers, status
from autoscaler.signals.exposition import Counts, ScaleTargetName, TargetTokens
from serving import clock, errors
from serving.kube import Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes import conditions
from tests.fakes.gateway_pages import FakePages
from tests.fakes.kube import FakeKube
from tests.objects.deployments import deployment
from tests.rig.control_plane.convergence import QUICK, until

NS = "default"
CAPACITY = {
    "modelDigest": "sha256:m",
    "capacity": 10.0,
    "measuredAt": "2026-01-01T00:00:00Z",
    "points": [{"level": 10.0, "throughput": 10.0}],
}
LEASE = {"renewTime": "2999-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1_000_000_000}
"""Of a gateway that lives for all of a test."""


class Time:
    """A clock that advances by five seconds at each tick; a tick takes 20 ms."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.set_by = 0.0

    def tick(self) -> None:
        self.passed += 5.0

    def now(self) -> dt.datetime:
        return dt.datetime(2026, 3, 4, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=self.passed + self.set_by)


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake_time = Time()
    monkeypatch.setattr(controller, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(clock, "now", fake_time.now)
    monkeypatch.setattr(clock, "monotonic", lambda: fake_time.passed)
    monkeypatch.setattr("autoscaler.targets.SCALERS_SECONDS", 0.0)
    monkeypatch.setattr(FakePages, "on_read", staticmethod(fake_time.tick), raising=False)
    return fake_time


def autoscaled_api(minimum: int, maximum: int, replicas: int, **spec: Any) -> FakeKube:
    """Return an API with an Autoscaler and its Deployment; a replica serves 10 requests per second."""
    api = FakeKube()
    env = [{"name": names.MODEL_DIGEST_ENV, "value": "sha256:m"}]
    labels = {names.INFERENCE_LABEL: "d"}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    body = {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": maximum, **spec}
    api.add(kinds.DEPLOYMENT, deployment("d", replicas, labels=labels, env=env))
    api.add(kinds.CAPACITY_PROFILE, {"metadata": {"name": "p", "namespace": NS}, "spec": CAPACITY})
    api.add(kinds.LEASE, {"metadata": {"name": "slipway-gateway-local", "namespace": NS}, "spec": LEASE})
    api.add(kinds.AUTOSCALER, {"metadata": {"name": "a", "namespace": NS}, "spec": body})
    return api


def add_scaler(api: FakeKube, api_version: str, kind: str, name: str) -> None:
    """Add the HorizontalPodAutoscaler `theirs` of an object."""
    target = {"apiVersion": api_version, "kind": kind, "name": name}
    scaler = {"metadata": {"name": "theirs", "namespace": NS}, "spec": {"scaleTargetRef": target}}
    api.documents["/apis/autoscaling/v2/horizontalpodautoscalers"] = {"items": [scaler]}


async def node(api: FakeKube, *, is_broken: bool = False) -> None:
    """Run the desired number of replicas; on a broken node only the first becomes ready."""
    while True:
        for target in api.find(kinds.DEPLOYMENT):
            count = target["spec"]["replicas"]
            status_fields = {"replicas": count, "readyReplicas": min(count, 1) if is_broken else count}
            api.change(kinds.DEPLOYMENT, NS, target["metadata"]["name"], {"status": status_fields})
        await asyncio.sleep(0.005)


class Refusing:
    """Writes of the scale subresource, each of which is refused."""

    def __init__(self, error: Exception | None, times: float = math.inf) -> None:
        self.error = error
        self.times = times
        self.attempts = 0
        self._patch = FakeKube.patch

    @property
    def patch(self) -> Callable[..., Awaitable[Object]]:
        async def patch(
            kube: FakeKube, *arguments: Any, subresource: str | None = None, **options: Any
        ) -> Object:
            if subresource == "scale":
                self.attempts += 1
                if self.error is not None and self.attempts <= self.times:
                    raise self.error
            return await self._patch(kube, *arguments, subresource=subresource, **options)

        return patch


@contextlib.asynccontextmanager
async def running(
    api: FakeKube, pages: FakePages, *, controllers: int = 1, is_broken: bool = False
) -> AsyncIterator[list[controller.AutoscalerController]]:
    tasks = [asyncio.create_task(node(api, is_broken=is_broken))]
    scalers = []
    for _ in range(controllers):
        kube = api.client("autoscaler")
        watches = Watches(kube)
        scalers.append(controller.AutoscalerController(kube, QUICK, watches, pages=pages))
        tasks += [asyncio.create_task(scalers[-1].run()), asyncio.create_task(watches.run())]
    try:
        yield scalers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def replicas(api: FakeKube) -> int:
    return int(api.find(kinds.DEPLOYMENT)[0]["spec"]["replicas"])


def autoscaler_status(api: FakeKube) -> Object:
    return dict(api.find(kinds.AUTOSCALER)[0].get("status") or {})


def condition(api: FakeKube, name: str) -> Object:
    return dict(conditions.find(autoscaler_status(api).get("conditions"), name) or {})


async def ticks(pages: FakePages, count: int) -> None:
    last_tick = pages.ticks + count
    await until(lambda: pages.ticks >= last_tick, f"{count} ticks")


async def counts_during(api: FakeKube, pages: FakePages, count: int) -> list[int]:
    """Return the counts of the next ticks."""
    last_tick, counts = pages.ticks + count, [replicas(api)]

    def are_over() -> bool:
        if replicas(api) != counts[-1]:
            counts.append(replicas(api))
        return pages.ticks >= last_tick

    await until(are_over, f"{count} ticks")
    return counts


async def test_replicas_follow_when_load_becomes_tenfold_in_one_step(time: Time) -> None:
    api, pages = autoscaled_api(1, 50, 1), FakePages("d")
    pages.rates["d"] = 8.0
    async with running(api, pages):
        await until(
            lambda: "capacity" in autoscaler_status(api).get("decision", {}), "a decision on readings"
        )
        await ticks(pages, 40)
        assert replicas(api) <= 3
        pages.rates["d"], began = 80.0, time.passed
        await until(lambda: replicas(api) >= 8, "replicas for the load")
        assert time.passed - began <= 40.0, "a few readings, and not a mean over minutes"
        await ticks(pages, 20)
        assert replicas(api) <= 30, "no more than the load and its uncertainty ask for"
        changes = autoscaler_status(api)["decisions"]
        assert changes[0]["toReplicas"] == replicas(api)
        assert len(changes) <= status.KEPT


async def test_replicas_follow_the_waiting_tokens_that_gateways_count() -> None:
    api = autoscaled_api(1, 5, 1, metrics=[{"type": "TokenQueueDepth", "target": "500"}])
    pages = FakePages("d")
    pages.rates["d"] = 2.0
    pages.tokens["d"] = TargetTokens(processed=100, waiting=100)
    async with running(api, pages):
        await ticks(pages, 20)
        assert replicas(api) == 1
        pages.tokens["d"] = TargetTokens(processed=100, waiting=1900)
        await until(lambda: replicas(api) == 4, "a replica for each 500 tokens")
        assert "TokenQueueDepth: 1.9e+03 at 500 each" in autoscaler_status(api)["reason"]


async def test_ticks_go_on_when_a_query_of_another_autoscaler_is_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()

    async def unanswered(*_: object) -> float:
        asked.set()
        await asyncio.Event().wait()
        return 0.0

    monkeypatch.setattr("autoscaler.signals.prometheus.query_instant", unanswered)
    api, pages = autoscaled_api(1, 50, 1), FakePages("d")
    metric = {"type": "PromQL", "name": "jobs", "query": "jobs", "target": 1, "serverAddress": "http://p"}
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    spec = {"scaleTargetRef": other, "minReplicas": 1, "maxReplicas": 2, "metrics": [metric]}
    api.add(kinds.DEPLOYMENT, deployment("other", 1, labels={names.INFERENCE_LABEL: "d"}))
    api.add(kinds.AUTOSCALER, {"metadata": {"name": "other", "namespace": NS}, "spec": spec})
    pages.rates["d"] = 80.0

    def count() -> int:
        (target,) = (each for each in api.find(kinds.DEPLOYMENT) if each["metadata"]["name"] == "d")
        return int(target["spec"]["replicas"])

    kube = api.client("autoscaler")
    watches = Watches(kube)
    scaler = controller.AutoscalerController(kube, QUICK, watches, pages=pages)
    tasks = [asyncio.create_task(scaler.run()), asyncio.create_task(watches.run())]
    ready = {"status": {"replicas": 1, "readyReplicas": 1}}
    for name in ("d", "other"):
        api.change(kinds.DEPLOYMENT, NS, name, ready)
    try:
        await until(asked.is_set, "a query")
        await until(lambda: count() >= 8, "replicas for the load")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("least", [0, 1])
async def test_replicas_follow_a_query_at_once_when_there_are_no_requests(
    least: int, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = 0.0

    async def answer(*_: object) -> float:
        return jobs

    monkeypatch.setattr("autoscaler.signals.prometheus.query_instant", answer)
    metric = {"type": "PromQL", "name": "jobs", "query": "jobs", "target": 5, "serverAddress": "http://p"}
    api, pages = autoscaled_api(least, 20, 1, metrics=[metric]), FakePages("d")
    async with running(api, pages):
        reason = "MinReplicas" if least else "KeepAlive"
        await until(lambda: condition(api, "Ready").get("reason") == reason, "a decision without jobs")
        await ticks(pages, 2)
        jobs, began = 50.0, time.passed
        await until(lambda: replicas(api) == 10, "a replica for five jobs")
        assert time.passed - began <= 30.0, "readings of the query, and not a minute"


@pytest.mark.parametrize("fault", ["gone", "repeats", "nan", "fallen"])
async def test_no_replica_is_removed_when_readings_fail_and_the_status_reports_it(
    fault: str,
) -> None:
    api, pages = autoscaled_api(1, 20, 6, behavior={"scaleDown": {"stabilizationSeconds": 0}}), FakePages("d")
    pages.rates["d"] = 50.0
    async with running(api, pages):
        await ticks(pages, 10)
        count_before = replicas(api)
        assert count_before >= 5
        if fault == "gone":
            pages.is_gone = True
        elif fault == "repeats":
            pages.repeats = True
        pages.rates["d"] = 0.0
        if fault in ("nan", "fallen"):
            total = math.nan if fault == "nan" else 1.0
            pages.replaced = {ScaleTargetName(NS, "d"): Counts(total, total)}
        await until(
            lambda: any(not s["healthy"] for s in autoscaler_status(api).get("signals", [])),
            "the gateway is named",
        )
        await ticks(pages, 120 if fault != "fallen" else 0)  # ten minutes
        assert replicas(api) >= count_before
        (signal,) = autoscaler_status(api)["signals"]
        assert signal["source"] == "gateway-local"
        assert signal["message"]


@pytest.mark.parametrize(
    "error",
    [
        errors.Forbidden(403, "Forbidden", "a quota"),
        errors.Conflict(409, "Conflict", "changed"),
        errors.Unavailable("429 Too Many Requests"),
        errors.ApiError(500, "", "down"),
    ],
    ids=["403", "409", "429", "500"],
)
async def test_refused_scale_is_reported_and_the_count_applied_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    api, pages = autoscaled_api(3, 20, 1), FakePages("d")
    scaling = Refusing(error)
    monkeypatch.setattr(FakeKube, "patch", scaling.patch)
    async with running(api, pages):
        await until(
            lambda: condition(api, "ScalingActive").get("reason") == "ScaleRefused", "the status reports it"
        )
        refused = scaling.attempts
        await ticks(pages, 10)
        assert scaling.attempts > refused, "it is tried again"
        assert replicas(api) == 1
        assert (autoscaler_status(api)["desiredReplicas"], autoscaler_status(api)["currentReplicas"]) == (
            3,
            1,
        )
        assert "decisions" not in autoscaler_status(api), "nothing has changed the count"
        assert not any(e["reason"] == "Scaled" for e in api.find(kinds.EVENT_V1))
        assert str(error) in condition(api, "ScalingActive")["message"]
        scaling.error = None
        await until(lambda: replicas(api) == 3, "the minimum")
        await until(lambda: condition(api, "ScalingActive")["status"] == "True", "the status reports it")
        assert len(autoscaler_status(api)["decisions"]) == 1
        assert not [r for r in caplog.records if r.levelname == "ERROR"], (
            "a refusal is no bug: no stack is logged"
        )


async def test_single_refusals_of_the_scale_subresource_are_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, pages = autoscaled_api(3, 20, 1), FakePages("d")
    scaling = Refusing(errors.Conflict(409, "Conflict", "changed"), times=1)
    monkeypatch.setattr(FakeKube, "patch", scaling.patch)
    reported: list[str] = []
    monkeypatch.setattr(
        other_writers,
        "refused",
        lambda _, error: reported.append(str(error)) or other_writers.condition("", "", is_contested=False),
    )
    async with running(api, pages):
        await until(lambda: "currentReplicas" in autoscaler_status(api), "a status")
        assert scaling.attempts == 2
        assert replicas(api) == 3
        assert condition(api, "ScalingActive")["reason"] == "Scaling"
        await ticks(pages, 10)
        scaling.times = scaling.attempts + 1
        api.change(kinds.AUTOSCALER, NS, "a", {"spec": {"minReplicas": 4}})
        await until(lambda: replicas(api) == 4, "the minimum")
        assert scaling.attempts == 4
    assert not reported


async def test_two_controllers_decide_the_same_count_without_oscillation() -> None:
    api, pages = autoscaled_api(1, 50, 1), FakePages("d")
    pages.rates["d"] = 60.0
    counts: list[int] = []
    async with running(api, pages, controllers=2):
        await until(lambda: replicas(api) >= 6, "replicas for the load")
        await ticks(pages, 200)
        for _ in range(100):
            if not counts or counts[-1] != replicas(api):
                counts.append(replicas(api))
            await asyncio.sleep(0.01)
    turns = sum((b - a) * (c - b) < 0 for a, b, c in zip(counts, counts[1:], counts[2:], strict=False))
    assert turns <= 5, counts  # controllers that undo each other turn at every tick, a hundred times
    assert max(counts) - min(counts) <= max(counts) / 2, counts  # the load of readings 10 ms apart is noisy
    assert condition(api, "ScalingActive")["status"] == "True", (
        "the controllers do not report each other as another scaler"
    )


async def test_another_scaler_of_the_target_is_reported_and_not_overridden() -> None:
    api, pages = autoscaled_api(2, 20, 1), FakePages("d")
    add_scaler(api, "apps/v1", "Deployment", "d")
    async with running(api, pages):
        await until(
            lambda: condition(api, "ScalingActive").get("reason") == "AnotherScaler", "the status reports it"
        )
        assert condition(api, "ScalingActive")["status"] == "False"
        assert "theirs" in condition(api, "ScalingActive")["message"]
        await ticks(pages, 5)
        assert replicas(api) == 1
        api.documents.clear()
        await until(lambda: replicas(api) == 2, "the minimum, once no other scaler writes")


async def test_count_of_another_autoscaler_is_followed_when_unmanaged() -> None:
    api, pages = autoscaled_api(1, 1, 2, managed=False), FakePages("d")
    pages.rates["d"] = 60.0
    add_scaler(api, kinds.AUTOSCALER.api_version, "Autoscaler", "a")
    kube = api.client("theirs")
    async with running(api, pages):
        await until(lambda: bool(autoscaler_status(api).get("selector")), "a status with the selector")
        view = orjson.loads(await kube.raw(kinds.AUTOSCALER.path(NS, "a", "scale")))
        assert view["spec"]["replicas"] == 2, "the first count is the one that the target has"
        assert view["status"] == {"replicas": 2, "selector": "app=d"}
        await ticks(pages, 10)
        assert replicas(api) == 2, "the load needs more, which another autoscaler decides"
        assert autoscaler_status(api)["decision"]["needed"] > 2
        for count in (7, 3, 0):
            await kube.patch(kinds.AUTOSCALER, NS, "a", {"spec": {"replicas": count}}, subresource="scale")
            await until(lambda count=count: replicas(api) == max(count, 1), "the count, at least minReplicas")
        await ticks(pages, 10)
        assert replicas(api) == 1
        active = condition(api, "ScalingActive")
        assert (active["status"], active["reason"]) == ("False", "Unmanaged")
        assert "HorizontalPodAutoscaler theirs" in active["message"]
        assert condition(api, "Ready")["reason"] == "Unmanaged"


async def test_horizontal_pod_autoscaler_of_a_managed_autoscaler_is_reported_and_has_no_effect() -> None:
    api, pages = autoscaled_api(2, 20, 2), FakePages("d")
    add_scaler(api, kinds.AUTOSCALER.api_version, "Autoscaler", "a")
    async with running(api, pages):
        await until(lambda: condition(api, "ScalingActive").get("reason") == "ScalerIgnored", "the status")
        assert "managed: false" in condition(api, "ScalingActive")["message"]
        api.documents.clear()
        await until(lambda: condition(api, "ScalingActive")["reason"] == "Scaling", "no other autoscaler")
        api.change(kinds.AUTOSCALER, NS, "a", {"spec": {"replicas": 9}})
        await until(
            lambda: condition(api, "ScalingActive")["message"].startswith("spec.replicas"), "the status"
        )
        await ticks(pages, 5)
        assert replicas(api) == 2
        assert not autoscaler_status(api).get("selector")


async def test_another_writer_of_the_count_is_reported_and_not_overridden() -> None:
    api, pages = autoscaled_api(2, 20, 2), FakePages("d")
    async with running(api, pages):
        await until(lambda: bool(autoscaler_status(api)), "a status")
        for count in (9, 8, 7, 11):
            foreign_change = {"metadata": {"managedFields": None}, "spec": {"replicas": count}}
            api.change(kinds.DEPLOYMENT, NS, "d", foreign_change)
            await ticks(pages, 3)
        await until(
            lambda: condition(api, "ScalingActive").get("reason") == "AnotherScaler", "the status reports it"
        )
        api.change(kinds.DEPLOYMENT, NS, "d", {"spec": {"replicas": 1}})
        await ticks(pages, 5)
        assert replicas(api) == 1


async def test_new_targets_are_scaled_when_revisions_replace_each_other() -> None:
    api, pages = autoscaled_api(2, 20, 2), FakePages("d")
    labels = {names.INFERENCE_LABEL: "d"}
    async with running(api, pages):
        await until(lambda: bool(autoscaler_status(api)), "a status")
        for count in (9, 8, 11):
            name = f"d-{count}"
            api.add(kinds.DEPLOYMENT, deployment(name, count, labels=labels))
            api.change(kinds.AUTOSCALER, NS, "a", {"spec": {"scaleTargetRef": {"name": name}}})
            await ticks(pages, 10)
            assert condition(api, "ScalingActive")["status"] == "True"
            assert condition(api, "Ready")["reason"] != "RaisedByAnother"


async def test_count_is_lowered_to_the_maximum_when_another_writer_raised_it_above() -> None:
    api, pages = autoscaled_api(2, 5, 2), FakePages("d")
    async with running(api, pages):
        await until(lambda: bool(autoscaler_status(api)), "a status")
        api.change(kinds.DEPLOYMENT, NS, "d", {"metadata": {"managedFields": None}, "spec": {"replicas": 10}})
        await until(lambda: replicas(api) < 10, "a count within the bounds")
        assert await counts_during(api, pages, 40) == [5], "a raised count is not lowered further for a while"
        assert condition(api, "Ready")["reason"] == "RaisedByAnother"


async def test_observe_mode_writes_no_count_but_wakes_from_zero() -> None:
    api, pages = autoscaled_api(0, 20, 4, prediction={"mode": "Observe"}), FakePages("d")
    pages.rates["d"] = 100.0
    async with running(api, pages):
        await until(lambda: autoscaler_status(api).get("desiredReplicas", 0) >= 10, "what would be")
        assert replicas(api) == 4
        assert condition(api, "ScalingActive")["reason"] == "Observe"
        await until(lambda: any(e["reason"] == "WouldScale" for e in api.find(kinds.EVENT_V1)), "an Event")
        assert [metric["name"] for metric in autoscaler_status(api)["metrics"]] == ["QPS"]
        assert not any(e["reason"] == "Scaled" for e in api.find(kinds.EVENT_V1))
        assert "decisions" not in autoscaler_status(api), "nothing has changed the count"
        pages.rates["d"] = 0.0
        api.change(kinds.DEPLOYMENT, NS, "d", {"spec": {"replicas": 0}})
        await ticks(pages, 5)
        assert replicas(api) == 0
        waiting = [{"reporter": "activator-local", "inFlight": 3}]
        api.change(kinds.AUTOSCALER, NS, "a", {"status": {"demand": waiting}})
        await until(lambda: replicas(api) == 1, "one replica")


@pytest.mark.parametrize("ignored", ["spec.replicas", "HorizontalPodAutoscaler theirs"])
async def test_observe_mode_writes_no_count_when_that_of_another_autoscaler_is_ignored(
    ignored: str,
) -> None:
    api, pages = autoscaled_api(1, 20, 4, prediction={"mode": "Observe"}), FakePages("d")
    if "theirs" in ignored:
        add_scaler(api, kinds.AUTOSCALER.api_version, "Autoscaler", "a")
    else:
        api.change(kinds.AUTOSCALER, NS, "a", {"spec": {"replicas": 9}})
    pages.rates["d"] = 100.0
    async with running(api, pages):
        await until(lambda: autoscaler_status(api).get("desiredReplicas", 0) >= 10, "a decision for more")
        await ticks(pages, 5)
        assert replicas(api) == 4
        active = condition(api, "ScalingActive")
        assert (active["status"], active["reason"]) == ("False", "Observe")
        assert f"{ignored} has no effect" in active["message"]


async def test_observe_mode_reports_decisions_without_scaling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, pages = autoscaled_api(0, 20, 4, prediction={"mode": "Observe"}), FakePages("d")
    scaling = Refusing(None)
    monkeypatch.setattr(FakeKube, "patch", scaling.patch)
    pages.rates["d"] = 100.0
    async with running(api, pages) as (scaler,):
        await until(
            lambda: autoscaler_status(api).get("desiredReplicas", 0) >= 10,
            "a decision for more replicas",
        )
        text = await scaler.metrics_page()
        labels = 'namespace="default",autoscaler="a"'
        assert f"slipway_autoscaler_active{{{labels}}} 0" in text
        (desired,) = re.findall(rf"slipway_autoscaler_desired_replicas{{{labels}}} (\d+)", text)
        assert int(desired) >= 10
        for name in ("forecast_lower", "forecast_median", "forecast_upper", "work_per_second"):
            assert f"slipway_autoscaler_{name}{{{labels}}}" in text
        pages.rates["d"] = 0.0
        await until(lambda: autoscaler_status(api)["desiredReplicas"] < 4, "fewer")
        moves = [e["message"] for e in api.find(kinds.EVENT_V1) if e["reason"] == "WouldScale"]
        assert any(re.match(r"d: 4 to 1\d: ", move) for move in moves), moves
    assert (scaling.attempts, replicas(api)) == (0, 4)


async def test_observe_mode_reports_a_decision_again_when_the_count_sufficed_meanwhile() -> None:
    behavior = {"scaleDown": {"stabilizationSeconds": 0}}
    api = autoscaled_api(3, 20, 1, prediction={"mode": "Observe"}, behavior=behavior)

    def reports() -> int:
        # The message also has the reason of the decision: with another reason, another Event is counted.
        events = [event for event in api.find(kinds.EVENT_V1) if event["reason"] == "WouldScale"]
        return sum(event["count"] for event in events if event["message"].startswith("d: 1 to 3:"))

    async with running(api, FakePages("d")):
        await until(lambda: reports() == 1, "an Event")
        await until(lambda: autoscaler_status(api).get("desiredReplicas") == 3, "the decision")
        api.change(kinds.AUTOSCALER, NS, "a", {"spec": {"minReplicas": 1}})
        await until(lambda: autoscaler_status(api)["desiredReplicas"] == 1, "the count suffices")
        api.change(kinds.AUTOSCALER, NS, "a", {"spec": {"minReplicas": 3}})
        await until(lambda: reports() == 2, "the Event again")


async def test_schedule_applies_at_local_time_on_a_daylight_saving_change(time: Time) -> None:
    """Berlin, 2026-03-29: 1:59:59 is followed by 3:00:00, which is 1:00 UTC."""
    schedule = {
        "name": "early",
        "start": "0 3 * * *",
        "duration": "1h",
        "timeZone": "Europe/Berlin",
        "minReplicas": 5,
    }
    api, pages = autoscaled_api(1, 20, 1, schedules=[schedule]), FakePages("d")
    time.set_by = (dt.datetime(2026, 3, 29, 0, 58, tzinfo=dt.UTC) - time.now()).total_seconds()
    async with running(api, pages):
        await until(lambda: autoscaler_status(api).get("desiredReplicas") == 1, "a status")
        assert time.now() < dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC)
        await until(lambda: replicas(api) == 5, "the minimum of the schedule")
        assert (
            dt.datetime(2026, 3, 29, 1, tzinfo=dt.UTC)
            <= time.now()
            < dt.datetime(2026, 3, 29, 1, 2, tzinfo=dt.UTC)
        )
        await until(
            lambda: autoscaler_status(api)["decision"].get("schedule") == "early", "the schedule is named"
        )
        time.set_by += 3600.0
        await until(lambda: replicas(api) < 5, "the ordinary minimum, an hour later")


async def test_count_does_not_wind_up_when_a_replica_never_becomes_ready() -> None:
    api, pages = autoscaled_api(1, 100, 1), FakePages("d")
    pages.rates["d"] = 35.0
    async with running(api, pages, is_broken=True):
        await until(lambda: replicas(api) >= 4, "replicas for the load")
        await ticks(pages, 20)
        count_before = replicas(api)
        pages.in_flight["d"] = 5000.0
        assert max(await counts_during(api, pages, 40)) <= max(2 * count_before, 12)


@pytest.mark.parametrize("jump", [3600.0, -3600.0], ids=["forward", "back"])
async def test_no_replica_is_lost_when_the_clock_is_set(jump: float, time: Time) -> None:
    api, pages = autoscaled_api(1, 50, 1), FakePages("d")
    pages.rates["d"] = 50.0
    async with running(api, pages):
        await until(lambda: replicas(api) >= 5, "replicas for the load")
        await ticks(pages, 5)
        count_before = replicas(api)
        time.set_by = jump
        counts = await counts_during(api, pages, 20)
        assert min(counts) >= count_before
        assert max(counts) <= 2 * count_before
        pages.rates["d"] = 150.0
        await until(lambda: replicas(api) >= 14, "replicas for more load after the clock was set")


@pytest.mark.parametrize("seconds_behind", [90.0, -90.0], ids=["behind", "ahead"])
async def test_replicas_follow_load_when_the_clock_of_the_gateway_differs(seconds_behind: float) -> None:
    api, pages = autoscaled_api(1, 50, 1), FakePages("d")
    pages.seconds_behind = seconds_behind
    pages.rates["d"] = 8.0
    async with running(api, pages):
        await ticks(pages, 10)
        pages.rates["d"] = 80.0
        await until(lambda: replicas(api) >= 8, "replicas for the load")


async def test_last_replica_stays_for_the_idle_time_when_the_clock_of_the_gateway_is_behind(
    time: Time,
) -> None:
    behavior = {"scaleToZero": {"idleSeconds": 30}}
    api, pages = autoscaled_api(0, 5, 1, behavior=behavior), FakePages("d")
    pages.seconds_behind = 35.0
    pages.rates["d"] = 2.0
    async with running(api, pages):
        await ticks(pages, 10)
        assert replicas(api) == 1
        pages.rates["d"], began = 0.0, time.passed
        await until(lambda: replicas(api) == 0, "no replica after the idle time")
        assert 30.0 <= time.passed - began <= 45.0
