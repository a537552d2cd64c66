"""Range queries of a real Prometheus, and the backfill from them."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler import controller
from autoscaler.forecast.history import History
from autoscaler.policy.config import PolicyConfig
from autoscaler.signals import prometheus
from autoscaler.state import backfill
from autoscaler.state.store import StateStore
from serving import clock, errors
from serving.kube import Key, Watches
from serving.objects import Object
from serving.resources import kinds, names
from serving.system.network import http_reading
from tests.fakes.gateway_pages import FakePages
from tests.fakes.kube import FakeKube
from tests.objects import deployments
from tests.rig.control_plane.convergence import QUICK, kill, until
from tests.rig.servers.prometheus_server import prometheus as running

NS = "default"
HOURS = 6
RATE = 2.0
"""Requests per second of each of two gateways."""
LABELS = f'namespace="{NS}",inference="i",predictor="p",revision="d"'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Six hours of two gateways with one predictor; the second was silent for three hours."""
    now = int(clock.now().timestamp())
    start = now - HOURS * 3600
    lines = ["# TYPE slipway_requests_received counter"]
    for gateway, begin in (("a", start), ("b", start + HOURS * 1800)):
        lines += [
            f'slipway_requests_received_total{{{LABELS},instance="{gateway}"}} {(at - begin) * RATE} {at}'
            for at in range(begin, now, 60)
        ]
    with running(tmp_path_factory.mktemp("prometheus") / "run", history=lines) as url:
        yield url


def deployment() -> Object:
    labels = {names.INFERENCE_LABEL: "i", names.PREDICTOR_LABEL: "p"}
    return deployments.deployment("d", labels=labels)


async def test_a_range_is_the_sum_over_gateways_and_lacks_the_time_before_the_first_sample(
    server: str,
) -> None:
    query, end = backfill.query(deployment()), float(int(clock.now().timestamp()) // 300 * 300)
    assert query is not None
    async with http_reading.session() as session:
        span = prometheus.RangeQuery(query, end - 86_400, end, 300.0)
        rates = await prometheus.query_range(session, server, span)
        now = await prometheus.query_instant(
            session, f"{server}/", f"sum(sum_over_time(({query})[10m:1m])) / 10"
        )
    assert HOURS * 12 - 2 <= len(rates) <= HOURS * 12 + 1
    assert rates[min(rates) + 1800] == pytest.approx(RATE, rel=0.05)
    assert rates[max(rates) - 1800] == pytest.approx(2 * RATE, rel=0.05)
    assert now == pytest.approx(2 * RATE, rel=0.2)


async def test_invalid_query_is_refused_and_a_query_without_result_has_no_values(server: str) -> None:
    now = clock.now().timestamp()
    async with http_reading.session() as session:
        with pytest.raises(errors.Permanent, match="parse error"):
            await prometheus.query_range(session, server, prometheus.RangeQuery("sum(", now - 600, now, 60))
        assert not await prometheus.query_range(
            session, server, prometheus.RangeQuery("absent_metric", now - 600, now, 60)
        )
        for query in ("sum(", "absent_metric"):
            with pytest.raises(errors.Unavailable):
                await prometheus.query_instant(session, server, query)


@pytest.mark.parametrize("is_stored", [False, True], ids=["nothing-stored", "stored"])
async def test_target_without_stored_state_learns_its_past_load(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    monkeypatch.setattr(controller, "TICK_SECONDS", 0.02)
    api, pages, store, key = FakeKube(), FakePages("d"), StateStore(tmp_path), Key(NS, "a")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    metric = {"type": "PromQL", "name": "jobs", "query": "vector(12)", "target": 4}
    api.add(kinds.DEPLOYMENT, deployment())
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5, "metrics": [metric]}
    api.add(kinds.AUTOSCALER, {"metadata": {"name": "a", "namespace": NS}, "spec": spec})
    if is_stored:
        uid = api.find(kinds.AUTOSCALER)[0]["metadata"]["uid"]
        store.write(key, uid, backfill.backfilled_state(PolicyConfig(), {}))
    kube = api.client("autoscaler")
    watches = Watches(kube)
    settings = replace(QUICK, prometheus=server)
    scaler = controller.AutoscalerController(kube, settings, watches, pages=pages, store=store)
    work = [asyncio.create_task(scaler.run()), asyncio.create_task(watches.run())]
    try:
        await until(
            lambda: api.find(kinds.DEPLOYMENT)[0]["spec"]["replicas"] == 3,
            "replicas by a query without serverAddress",
        )
        if not is_stored:
            await until(
                lambda: any(e["reason"] == "HistoryRead" for e in api.find(kinds.EVENT_V1)), "an Event"
            )
    finally:
        await kill(work)
    events = [e["message"] for e in api.find(kinds.EVENT_V1) if e["reason"] == "HistoryRead"]
    state = store.read(key, api.find(kinds.AUTOSCALER)[0]["metadata"]["uid"])
    assert state is not None
    known = History()
    known.restore(**state["forecast"]["history"])
    if is_stored:
        assert not events
        assert len(known) <= 1
    else:
        assert events == [f"6 hours of the target's load were read from {server}"]
        assert len(known) >= HOURS * 12 - 3
