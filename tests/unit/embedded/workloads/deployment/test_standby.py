"""Standby replicas: creation, promotion, and their absence from counts and slices."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.workloads.deployment import standby
from serving.embedded.workloads.deployment.plan import REPLACE_FAILED_AFTER, DeploymentSpec
from serving.embedded.workloads.endpoint_slice import plan as endpoint_plan
from serving.embedded.workloads.pods import PodFacts, read

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WANT = DeploymentSpec("web", "u", 1, "new")


def pod(name: str, hash_: str = "new", *, ready: bool = True, **more: Any) -> PodFacts:
    since = NOW if ready else None
    phase = more.pop("phase", "Running")
    return PodFacts(
        name, f"uid-{name}", NOW, hash_, phase, ready=ready, ready_since=since, standby=True, **more
    )


def plan(
    *pods: PodFacts, kept: int = 1, needed: int = 0, settled: bool = True, **more: Any
) -> standby.StandbyPlan:
    spec = DeploymentSpec("web", "u", 1, "new", **more)
    return standby.next_standbys(pods, spec, NOW, kept=kept, needed=needed, settled=settled)


def names(pods: tuple[PodFacts, ...]) -> list[str]:
    return [p.name for p in pods]


def test_standby_is_started_when_all_serving_replicas_are_ready() -> None:
    assert plan().create == 1
    assert plan(settled=False).create == 0
    assert plan(pod("a")).create == 0


def test_ready_standby_is_promoted_and_the_next_starts_later() -> None:
    planned = plan(pod("a", ready=False), pod("b"), kept=2, needed=1)
    assert (names(planned.promote), planned.create, planned.delete) == (["b"], 0, ())


def test_starting_standby_is_promoted_when_none_is_ready() -> None:
    assert names(plan(pod("a", ready=False), needed=1).promote) == ["a"]


def test_standbys_of_another_template_are_deleted_and_never_promoted() -> None:
    planned = plan(pod("a", "old"), needed=1)
    assert (planned.promote, names(planned.delete)) == ((), ["a"])


def test_surplus_standbys_are_deleted_and_terminating_ones_do_not_count() -> None:
    assert names(plan(pod("a"), pod("b"), kept=1).delete) == ["b"]
    assert plan(pod("a", terminating=True), kept=1).create == 1


def test_failed_standby_is_not_replaced_at_once() -> None:
    lately = pod("a", ready=False, phase="Failed", finished_at=NOW)
    assert plan(lately) == standby.StandbyPlan(requeue_after=REPLACE_FAILED_AFTER)
    before = pod("a", ready=False, phase="Failed", finished_at=NOW - REPLACE_FAILED_AFTER)
    assert names(plan(before).delete) == ["a"]


def test_paused_deployment_promotes_standbys_and_starts_none() -> None:
    assert plan(paused=True) == standby.StandbyPlan()
    assert names(plan(pod("a"), needed=1, paused=True).promote) == ["a"]


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from(["new", "old"])), max_size=6),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_same_standbys_are_promoted_when_the_watch_lags(
    drawn: list[tuple[bool, bool, str]], kept: int, needed: int
) -> None:
    pods = [pod(str(n), hash_, ready=ready, terminating=gone) for n, (ready, gone, hash_) in enumerate(drawn)]
    first = plan(*pods, kept=kept, needed=needed)
    assert plan(*reversed(pods), kept=kept, needed=needed).promote == first.promote
    assert len(first.promote) <= needed
    assert not {p.uid for p in first.promote} & {p.uid for p in first.delete}
    assert all(p.active and p.template_hash == "new" for p in first.promote)


@pytest.mark.parametrize(
    ("text", "count"), [("2", 2), ("", 0), ("-1", 0), ("many", 0), ("99999", standby.MAX_STANDBYS)]
)
def test_standby_count_is_zero_when_the_annotation_is_no_number(text: str, count: int) -> None:
    assert standby.count({"metadata": {"annotations": {"slipway.dev/standby": text}}}) == count


def test_standby_is_in_no_slice_until_its_label_is_removed() -> None:
    service = {
        "metadata": {"name": "web", "namespace": "n", "uid": "u"},
        "spec": {"selector": {"app": "web"}},
    }
    stored = {
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"slipway.dev/standby": "true"}},
        "spec": {},
        "status": {"podIP": "127.77.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert read(stored).standby
    assert endpoint_plan.slices(service, [stored])[0]["endpoints"] == []
    promoted = {**stored, "metadata": {**stored["metadata"], "labels": {}}}
    assert endpoint_plan.relevant(stored) != endpoint_plan.relevant(promoted)
    assert len(endpoint_plan.slices(service, [promoted])[0]["endpoints"]) == 1
