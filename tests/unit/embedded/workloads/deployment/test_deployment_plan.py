"""Simulated rollouts of a Deployment: the floor, the ceiling, and the final state."""

import datetime as dt
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.embedded.workloads.deployment import plan
from serving.embedded.workloads.deployment.plan import DeploymentSpec
from serving.embedded.workloads.pods import BURST_REPLICAS, PodFacts

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def pod(name: str, hash_: str = "new", *, ready: bool = True, age: int = 100, **more) -> PodFacts:
    since = START - dt.timedelta(seconds=age)
    return PodFacts(
        name=name,
        uid=name,
        created=since,
        template_hash=hash_,
        phase="Running",
        ready=ready,
        ready_since=since if ready else None,
        **more,
    )


def deployment_spec(replicas: int, **more) -> DeploymentSpec:
    return DeploymentSpec("web", "u", replicas, "new", **more)


@dataclass
class RolloutSimulation:
    """Pods that change as Hypothesis decides, and a controller without a delay."""

    spec: DeploymentSpec
    pods: dict[str, PodFacts]
    broken: set[str] = field(default_factory=set)
    now: dt.datetime = START
    created: int = 0

    def available(self) -> int:
        return sum(p.available(self.spec.min_ready_seconds, self.now) for p in self.pods.values())

    def active(self) -> int:
        return sum(p.active for p in self.pods.values())

    def step(self) -> bool:
        """Plan, take the steps and check both invariants; return whether there were steps."""
        planned = plan.next_pods(
            self.spec, list(self.pods.values()), self.now, rolled_out=self.spec.template_hash
        )
        available, active = self.available(), self.active()
        for deleted in planned.delete:
            self.pods[deleted.name] = replace(deleted, terminating=True)
        if not self.spec.recreate:
            assert self.available() >= min(available, self.spec.floor)
        for name in planned.create:
            assert name not in self.pods
            self.created += 1
            self.pods[name] = PodFacts(name, f"uid-{self.created}", self.now, self.spec.template_hash)
        if planned.create:
            assert self.active() <= max(self.spec.ceiling, active)
        return bool(planned.create or planned.delete)

    def happen(self, event: str, index: int) -> None:
        self.now += dt.timedelta(seconds=1)
        names = sorted(self.pods)
        if not names:
            return
        name = names[index % len(names)]
        target = self.pods[name]
        if event == "end" and target.terminating:
            del self.pods[name]
        elif (
            event == "ready"
            and target.active
            and target.template_hash not in self.broken
            and not target.ready
        ):
            self.pods[name] = replace(target, phase="Running", ready=True, ready_since=self.now)
        elif event == "unready" and target.active:
            self.pods[name] = replace(target, ready=False, ready_since=None)
        elif event == "fail" and target.active:
            self.pods[name] = replace(
                target, phase="Failed", ready=False, ready_since=None, finished_at=self.now
            )

    def calm(self) -> None:
        """Let every Pod become ready, or end."""
        self.now += dt.timedelta(seconds=30)
        for name, target in list(self.pods.items()):
            if target.terminating:
                del self.pods[name]
            elif target.active and target.template_hash not in self.broken and not target.ready:
                self.pods[name] = replace(target, phase="Running", ready=True, ready_since=self.now)


@st.composite
def rollouts(draw: st.DrawFn, *, recreate: bool | None = None) -> RolloutSimulation:
    replicas = draw(st.integers(0, 6))
    surge, unavailable = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    if draw(st.booleans()) if recreate is None else recreate:
        drawn = deployment_spec(replicas, surge=0, unavailable=replicas, recreate=True)
    else:
        unavailable = max(unavailable, 1) if surge == 0 else unavailable
        drawn = deployment_spec(
            replicas, surge=surge, unavailable=min(unavailable, replicas) or int(surge == 0)
        )
    drawn = replace(drawn, min_ready_seconds=draw(st.sampled_from([0, 0, 5])))
    pods = {}
    for number in range(draw(st.integers(0, 10))):
        name = f"p{number}"
        hash_ = draw(st.sampled_from(["new", "old", "older"]))
        drawn_pod = pod(name, hash_, ready=draw(st.booleans()), terminating=draw(st.integers(0, 4)) == 0)
        pods[name] = drawn_pod
    return RolloutSimulation(drawn, pods)


EVENTS = st.lists(
    st.tuples(st.sampled_from(["end", "ready", "unready", "fail", "plan", "plan"]), st.integers(0, 30)),
    max_size=40,
)


@settings(max_examples=300)
@given(rollouts(), EVENTS)
def test_floor_and_ceiling_hold_and_the_rollout_converges_from_any_state(
    rollout: RolloutSimulation, events
) -> None:
    for event, index in events:
        if event == "plan":
            rollout.step()
        else:
            rollout.happen(event, index)
    for _ in range(40):
        rollout.step()
        rollout.calm()
    assert sorted(p.template_hash for p in rollout.pods.values()) == ["new"] * rollout.spec.replicas
    assert rollout.available() == rollout.spec.replicas
    assert not rollout.step()


@settings(max_examples=200)
@given(rollouts(recreate=False), EVENTS)
def test_bad_revision_never_takes_available_pods_below_the_floor(rollout: RolloutSimulation, events) -> None:
    rollout.broken = {"new"}
    rollout.pods = {
        name: replace(p, ready=False, ready_since=None) if p.template_hash == "new" else p
        for name, p in rollout.pods.items()
    }
    for _ in range(10):
        least = min(rollout.available(), rollout.spec.floor)
        rollout.step()
        rollout.calm()
        assert rollout.available() >= least


@given(st.integers(0, 200), st.integers(0, 100), st.integers(0, 100))
def test_percentages_round_up_for_surge_and_down_for_unavailable(total: int, up: int, down: int) -> None:
    strategy = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": f"{up}%", "maxUnavailable": f"{down}%"},
    }
    spec = {"replicas": total, "template": {}, "strategy": strategy}
    step = plan.read_spec({"metadata": {"name": "a", "uid": "u"}, "spec": spec})
    assert step.surge == -(-up * total // 100)
    assert step.unavailable == (down * total // 100 or (1 if step.surge == 0 and total else 0))


def test_last_good_pod_stays_when_new_one_never_becomes_ready() -> None:
    step = plan.next_pods(
        deployment_spec(1), [pod("good", "old"), pod("bad", "new", ready=False)], START, rolled_out="new"
    )
    assert (step.create, step.delete) == ((), ())


def test_old_pods_are_kept_when_the_template_is_rolled_back() -> None:
    back = replace(deployment_spec(3), template_hash="old")
    pods = [pod("a", "old"), pod("b", "old"), pod("c", "new"), pod("d", "new", ready=False)]
    step = plan.next_pods(back, pods, START, rolled_out="old")
    assert [p.name for p in step.delete] == ["d"]
    assert len(step.create) == 0


def test_unready_and_then_newest_pods_are_deleted_first_when_scaled_down() -> None:
    pods = [pod("old-age", age=90), pod("young", age=10), pod("unready", ready=False), pod("middle", age=50)]
    step = plan.next_pods(deployment_spec(2, unavailable=2), pods, START, rolled_out="new")
    assert [p.name for p in step.delete] == ["unready", "young"]


def test_nothing_is_created_until_old_ones_are_gone_when_strategy_is_recreate() -> None:
    spec = deployment_spec(1, surge=0, unavailable=1, recreate=True)
    going = plan.next_pods(spec, [pod("a", "old")], START, rolled_out="new")
    assert [p.name for p in going.delete] == ["a"]
    assert not going.create
    leaving = plan.next_pods(spec, [pod("a", "old", terminating=True)], START, rolled_out="new")
    assert leaving == plan.DeploymentPlan()
    assert len(plan.next_pods(spec, [], START, rolled_out="new").create) == 1


def test_new_template_gets_no_pod_while_paused_and_scaling_down_works() -> None:
    spec = replace(deployment_spec(2), paused=True)
    pods = [pod("a", "old"), pod("b", "old"), pod("c", "old")]
    step = plan.next_pods(spec, pods, START, rolled_out="old")
    assert not step.create
    assert len(step.delete) == 1
    assert not plan.next_pods(spec, [pod("a", "old")], START, rolled_out="old").create
    assert len(plan.next_pods(spec, [pod("a")], START, rolled_out="new").create) == 1


def test_next_plan_is_when_a_pod_becomes_available() -> None:
    spec = replace(deployment_spec(1), min_ready_seconds=30)
    step = plan.next_pods(spec, [pod("a", age=10)], START, rolled_out="new")
    assert step.requeue_after == dt.timedelta(seconds=20)


def test_failed_pod_is_replaced_after_a_delay() -> None:
    failed = replace(pod("a", ready=False), phase="Failed", finished_at=START)
    soon = plan.next_pods(deployment_spec(1, surge=0, unavailable=1), [failed], START, rolled_out="new")
    assert (soon.create, soon.delete) == ((), ())
    assert soon.requeue_after == plan.REPLACE_FAILED_AFTER
    later = START + plan.REPLACE_FAILED_AFTER
    step = plan.next_pods(deployment_spec(1, surge=0, unavailable=1), [failed], later, rolled_out="new")
    assert [p.name for p in step.delete] == ["a"]
    assert len(step.create) == 1


def test_times_in_the_future_delay_nothing_when_the_clock_was_set_back() -> None:
    spec = replace(deployment_spec(1), min_ready_seconds=30)
    ready = pod("a", age=-3600)
    assert ready.available(spec.min_ready_seconds, START)
    assert plan.next_pods(spec, [ready], START, rolled_out="new").requeue_after is None
    failed = replace(pod("a", ready=False), phase="Failed", finished_at=ready.ready_since)
    assert [p.name for p in plan.next_pods(spec, [failed], START, rolled_out="new").delete] == ["a"]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_same_names_are_planned_when_a_create_is_not_in_the_cache(gone: int) -> None:
    first = plan.next_pods(deployment_spec(3, surge=3), [], START, rolled_out="new").create
    seen = [pod(name) for name in first[:gone]]
    assert plan.next_pods(deployment_spec(3, surge=3), seen, START, rolled_out="new").create == first[gone:]


def test_creations_are_limited_and_planned_again_at_once_when_replicas_are_mistyped() -> None:
    many = deployment_spec(1_000_000_000)
    step = plan.next_pods(many, [], START, rolled_out="new")
    assert (len(step.create), step.requeue_after) == (BURST_REPLICAS, dt.timedelta(0))
    again = plan.next_pods(many, [pod(name) for name in step.create], START, rolled_out="new")
    assert len(again.create) == BURST_REPLICAS
    assert not set(again.create) & set(step.create)
    assert plan.next_pods(deployment_spec(BURST_REPLICAS), [], START, rolled_out="new").requeue_after is None


def test_nothing_is_planned_again_at_once_when_a_mistyped_count_is_of_a_paused_template() -> None:
    paused = replace(deployment_spec(1_000_000_000), paused=True)
    step = plan.next_pods(paused, [pod("a", "old")], START, rolled_out="old")
    assert (step.create, step.requeue_after) == ((), None)


def test_pods_are_not_compared_pairwise_when_scaled_down(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod(f"p{number}", age=number) for number in range(5)]
    failed_at = START - plan.REPLACE_FAILED_AFTER
    pods += [replace(pod("failed", ready=False), phase="Failed", finished_at=failed_at)]
    compared: list[PodFacts] = []
    monkeypatch.setattr(PodFacts, "__eq__", lambda one, other: compared.append(one) or one is other)
    step = plan.next_pods(deployment_spec(2, surge=0, unavailable=2), pods, START, rolled_out="new")
    assert [p.name for p in step.delete] == ["failed", "p0", "p1", "p2"]
    assert compared == []
