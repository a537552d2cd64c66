"""The DaemonSets of predictors with `prefetch`, as the Inference controller keeps them, in memory."""

import dataclasses
from typing import Any

import pytest

from serving import errors
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kinds import Kind
from serving.resources.kubernetes import conditions
from tests.fakes.kube import FakeKube
from tests.fakes.surroundings import NS, predictor
from tests.rig.control_plane.convergence import until
from tests.unit.controllers.test_inference_statuses import PATIENT, QUICK, ControllerRig, controlled

ONE = predictor("stable", "digits-v1", prefetch=True)
RETRYING = dataclasses.replace(QUICK, backoff_cap_seconds=0.2)


def daemon_sets(rig: ControllerRig) -> list[Object]:
    return rig.api.find(kinds.DAEMON_SET)


def prefetched(rig: ControllerRig) -> tuple[str, str]:
    """Status and reason of the condition."""
    prefetched = conditions.find((rig.inference.get("status") or {}).get("conditions"), "Prefetched") or {}
    return prefetched.get("status", ""), prefetched.get("reason", "")


def report(rig: ControllerRig, nodes: int, ready: int) -> None:
    (stored,) = daemon_sets(rig)
    status = {
        "observedGeneration": stored["metadata"]["generation"],
        "desiredNumberScheduled": nodes,
        "updatedNumberScheduled": nodes,
        "numberReady": ready,
    }
    rig.api.change(kinds.DAEMON_SET, NS, stored["metadata"]["name"], {"status": status})


async def test_daemon_set_is_written_once_and_its_nodes_are_in_the_status() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        await until(lambda: prefetched(rig) == ("False", "Prefetching"))
        report(rig, nodes=3, ready=3)
        await until(lambda: prefetched(rig) == ("True", "AllNodes"))
        entry = rig.inference["status"]["predictors"][0]
        assert entry["prefetch"] == {"nodes": 3, "readyNodes": 3}
        assert rig.api.writes.count(f"apply daemonsets/{entry['revision']}") == 1


async def test_reports_of_nodes_are_not_written_one_by_one() -> None:
    async with controlled(PATIENT, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        before = rig.api.writes.count("apply inferences/digits/status")
        for ready in range(20):
            report(rig, nodes=20, ready=ready)
        # The change of weights is written at once, with the nodes of that time.
        two = [predictor("stable", "digits-v1", 1, prefetch=True), predictor("new", "digits-v2", 1)]
        rig.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": two}})
        await until(lambda: "new 50%" in rig.inference["status"]["traffic"])
        assert rig.inference["status"]["predictors"][0]["prefetch"] == {"nodes": 20, "readyNodes": 19}
        assert rig.api.writes.count("apply inferences/digits/status") - before < 5


async def test_daemon_set_is_removed_when_the_predictor_no_longer_asks_for_it() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: bool(daemon_sets(rig)))
        plain = predictor("stable", "digits-v1")
        rig.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": [plain]}})
        await until(lambda: not daemon_sets(rig))
        await until(lambda: prefetched(rig) == ("", ""))


async def test_daemon_set_that_others_edit_or_delete_is_put_back() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: bool(daemon_sets(rig)))
        (before,) = daemon_sets(rig)
        name = before["metadata"]["name"]
        edit = {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "plan9"}}}}
        rig.api.change(kinds.DAEMON_SET, NS, name, {"spec": edit})
        await until(lambda: daemon_sets(rig)[0]["spec"] == before["spec"])
        rig.api.remove(kinds.DAEMON_SET, NS, name)
        await until(lambda: [stored["spec"] for stored in daemon_sets(rig)] == [before["spec"]])


async def test_daemon_sets_of_others_are_not_read() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: bool(daemon_sets(rig)))
        owner = daemon_sets(rig)[0]["metadata"]["ownerReferences"]
        meta = {"name": "theirs", "namespace": NS, "ownerReferences": owner}
        rig.api.add(kinds.DAEMON_SET, {"metadata": meta, "spec": {}})
        plain = predictor("stable", "digits-v1")
        rig.api.change(kinds.INFERENCE, NS, "digits", {"spec": {"predictors": [plain]}})
        await until(lambda: [each["metadata"]["name"] for each in daemon_sets(rig)] == ["theirs"])
        assert names.INFERENCE_LABEL not in daemon_sets(rig)[0]["metadata"].get("labels", {})


async def test_inference_serves_and_has_the_reason_when_the_api_forbids_daemon_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply, is_forbidden = FakeKube.apply, [True]

    async def forbidding(self: FakeKube, kind: Kind, *args: Any, **options: Any) -> Object:
        if kind is kinds.DAEMON_SET and is_forbidden[0]:
            raise errors.Forbidden(403, "Forbidden", "exceeded quota: no-daemon-sets")
        return await apply(self, kind, *args, **options)

    monkeypatch.setattr(FakeKube, "apply", forbidding)
    async with controlled(RETRYING, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        await until(lambda: prefetched(rig) == ("False", "PrefetchRefused"))
        condition = conditions.find(rig.inference["status"]["conditions"], "Prefetched") or {}
        assert "exceeded quota: no-daemon-sets" in condition["message"]
        is_forbidden[0] = False
        await until(lambda: bool(daemon_sets(rig)))
        await until(lambda: prefetched(rig) == ("False", "Prefetching"))


async def test_another_arm_is_not_affected_when_the_api_refuses_one_daemon_set() -> None:
    other = predictor("other", "digits-v2", prefetch=True)
    async with controlled(QUICK, ONE, other) as rig:
        rig.api.refusals.append(
            lambda kind, obj: (
                "not this one" if kind is kinds.DAEMON_SET and "stable" in obj["metadata"]["name"] else ""
            )
        )
        await until(lambda: rig.ready[0] == "True")
        await until(lambda: prefetched(rig) == ("False", "PrefetchRefused"))
        assert [stored["metadata"]["labels"][names.PREDICTOR_LABEL] for stored in daemon_sets(rig)] == [
            "other"
        ]


async def test_daemon_set_is_deleted_with_its_inference() -> None:
    async with controlled(QUICK, ONE) as rig:
        await until(lambda: rig.ready[0] == "True")
        await rig.api.client("user").delete(kinds.INFERENCE, NS, "digits")
        await until(lambda: not rig.api.find(kinds.INFERENCE))
        assert not daemon_sets(rig)
