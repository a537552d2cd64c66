"""The objects around an Inference as values: the effect of a planner's actions, and checks of its invariants.

world = InferenceWorld(predictor("stable", "v1"))
world.plan(); world.ready(); world.accept()      # in any order, any number of times
world.plan(actions=2)                            # as a controller that is killed after its second write
"""

import copy
from typing import Any

from serving.objects import Object
from serving.planning.apportionment import RING_UNITS
from serving.planning.inference import inference_state, planner
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import (
    Action,
    Ensure,
    InferencePlan,
    PutBackTemplate,
    RemoveChild,
    SetFinalizers,
)
from serving.planning.models.volume import IMAGE
from serving.resources import kinds, names
from tests.fakes.surroundings import blocked_version, inference, ready_version

NOW = "2026-01-01T00:00:00Z"
GATEWAY = "gw"


class InferenceWorld:
    """One gateway, one node, and ModelVersions that are ready as soon as they are named."""

    def __init__(self, *predictors: Object, **spec: Any) -> None:
        self.inference = inference(*predictors, **spec)
        self.inference["metadata"] |= {"uid": "uid-0", "generation": 1}
        self.children: dict[str, dict[str, Object]] = {
            kind.kind: {}
            for kind in (
                kinds.DEPLOYMENT,
                kinds.SERVICE,
                kinds.AUTOSCALER,
                kinds.ROUTE,
                kinds.POD_DISRUPTION_BUDGET,
                kinds.DAEMON_SET,
            )
        }
        self.served: Object = {}
        """Spec of the Route that the gateway serves."""
        self.alive = True
        self.unready: set[str] = set()
        """ModelVersions that are still being built."""
        self.blocked: set[str] = set()
        """ModelVersions that a policy blocks."""
        self.blocked_by = "ContainsCode"
        """Reason of the blocked ModelVersions."""
        self.broken: set[str] = set()
        """ModelVersions whose replicas never become ready."""
        self.sick: set[str] = set()
        """ModelVersions whose replicas are ready, and do not answer a probe with 200."""
        self.proven: set[str] = set()
        self.is_patient = False
        """Whether statuses that may wait are held back."""
        self.problems: dict[str, str] = {}
        self.volume = IMAGE
        """The source of the model's files of new revisions."""
        self.seen: dict[str, Any] = {}
        """Fields of the observed objects that are not those of this world."""
        self.written = 0
        self.count = 0

    @property
    def route(self) -> Object | None:
        return self.children["Route"].get(self.inference["metadata"]["name"])

    @property
    def deployments(self) -> dict[str, Object]:
        return self.children["Deployment"]

    @property
    def budgets(self) -> dict[str, Object]:
        return self.children["PodDisruptionBudget"]

    @property
    def daemon_sets(self) -> dict[str, Object]:
        return self.children["DaemonSet"]

    def now(self, **fields: Any) -> ObservedObjects:
        versions = {p["modelVersion"] for p in self.inference["spec"]["predictors"]}
        versions |= set(map(_version, self.deployments.values()))
        return ObservedObjects(
            inference=self.inference,
            model_versions={
                name: blocked_version(name, self.blocked_by) if name in self.blocked else ready_version(name)
                for name in versions - self.unready
            },
            deployments=self.deployments,
            services=self.children["Service"],
            autoscalers=self.children["Autoscaler"],
            route=self.route,
            gateways=frozenset({GATEWAY} if self.alive else ()),
            gateway_problems=self.problems,
            model_volume=self.volume,
            **{"budgets": self.budgets, "daemon_sets": self.daemon_sets, **self.seen, **fields},
        )

    def edit(self, *predictors: Object) -> None:
        """Change the spec as a user does."""
        self.inference["spec"]["predictors"] = list(predictors)
        self.inference["metadata"]["generation"] += 1

    def plan(self, *, actions: int | None = None) -> InferencePlan:
        """Carry out a plan, or only its first actions."""
        plan = planner.plan(self.now(), NOW)
        for action in plan.actions[:actions]:
            self._act(action)
            self.check()
            self.written += 1
        if actions is None and plan.status is not None:
            if self.is_patient and plan.status_may_wait:
                self._check_proofs(plan.status)
            else:
                self.inference["status"] = copy.deepcopy(plan.status)
                self.written += 1
        return plan

    def ready(self) -> None:
        """Make every replica ready, except those of broken versions."""
        for deployment in self.deployments.values():
            count = deployment["spec"]["replicas"]
            ok = _version(deployment) not in self.broken
            deployment["status"] = {"replicas": count, "readyReplicas": count if ok else 0}

    def size(self, *, idle: bool = True) -> None:
        """Size every Deployment within the bounds of its Autoscaler; idle ones get the minimum."""
        for scaler in self.children["Autoscaler"].values():
            spec = scaler["spec"]
            target = self.deployments.get(spec["scaleTargetRef"]["name"])
            if target is not None:
                replicas = 0 if idle else target["spec"]["replicas"]
                target["spec"]["replicas"] = min(max(replicas, spec["minReplicas"]), spec["maxReplicas"])

    def accept(self) -> None:
        """Let the gateway serve the current Route, probe its candidates that have a replica, and report."""
        if self.route is not None and self.alive:
            self.served = copy.deepcopy(self.route["spec"])
            entry = {
                "name": GATEWAY,
                "acceptedGeneration": self.route["metadata"]["generation"],
                "address": "127.0.0.1:8080",
                "probes": self._probe(),
            }
            self.route["status"] = {"gateways": [entry]}
        self.check()

    def go_on(self) -> InferencePlan:
        """Take the usual steps in their usual order."""
        self.size(idle=False)
        self.ready()
        self.accept()
        return self.plan()

    def settle(self, rounds: int = 40) -> None:
        """Take steps until a step writes nothing."""
        for _ in range(rounds):
            written_before = self.written
            plan = self.go_on()
            if self.written == written_before:
                return
        raise AssertionError(f"still writing: {plan}")

    def check(self) -> None:
        """Check that every backend with traffic exists and was proven before."""
        for segment in self.served.get("segments") or []:
            assert segment["backend"] in self.deployments, "a Deployment with traffic was deleted"
            assert segment["backend"] in self.children["Service"], "a Service with traffic was deleted"
        if self.route is not None:
            spec = self.route["spec"]
            referenced = {segment["backend"] for segment in spec["segments"]}
            assert referenced <= {backend["name"] for backend in spec["backends"]}
            assert referenced <= self.proven, "traffic for a revision that was never proven"
            assert sum(segment["size"] for segment in spec["segments"]) in (0, RING_UNITS)

    def _probe(self) -> list[Object]:
        results = []
        for backend in self.served["backends"]:
            deployment = self.deployments.get(backend["name"]) or {}
            if "probe" in backend and (deployment.get("status") or {}).get("readyReplicas"):
                is_sick = _version(deployment) in self.sick
                self.proven |= set() if is_sick else {backend["name"]}
                results.append({"backend": backend["name"], "message": "503" if is_sick else ""})
        return results

    def _check_proofs(self, held_back: Object) -> None:
        """Check that the API also has the proof of each revision that a held-back status calls proven."""
        serving = inference_state.derive(self.now()).serving
        for predictor in held_back["predictors"]:
            assert serving.get(predictor["name"], "") == predictor["revision"], "a proof was lost"

    def _check_ring(self, new: Object) -> None:
        """Check that the ring is emptied only if a policy blocks every revision on it."""
        if self.route is None or new["segments"]:
            return
        held = {segment["backend"] for segment in self.route["spec"]["segments"]}
        stopped = self.blocked if self.blocked_by == "ContainsCode" else set()
        assert {_version(self.deployments[name]) for name in held} <= stopped, "the ring was emptied"

    def _act(self, action: Action) -> None:
        match action:
            case Ensure(kind, obj, at_creation):
                if kind is kinds.ROUTE:
                    self._check_ring(obj["spec"])
                self._ensure(self.children[kind.kind], copy.deepcopy(obj), at_creation)
            case RemoveChild(kind, name, uid):
                assert self.children[kind.kind][name]["metadata"]["uid"] == uid
                del self.children[kind.kind][name]
            case SetFinalizers(finalizers):
                self.inference["metadata"]["finalizers"] = list(finalizers)
            case PutBackTemplate(name, template):
                deployment = self.deployments[name]
                deployment["spec"]["template"] = copy.deepcopy(template)
                deployment["metadata"]["generation"] += 1

    def _ensure(self, table: dict[str, Object], obj: Object, at_creation: Object) -> None:
        old = table.get(obj["metadata"]["name"])
        if old is None:
            self.count += 1
            obj["spec"] |= at_creation.get("spec", {})
            obj["metadata"] |= {"uid": f"uid-{self.count}", "generation": 1}
            table[obj["metadata"]["name"]] = obj
            return
        old["metadata"]["labels"] = obj["metadata"]["labels"]
        if annotations := obj["metadata"].get("annotations"):
            old["metadata"]["annotations"] = annotations
        spec = obj["spec"] | ({"replicas": old["spec"]["replicas"]} if "replicas" in old["spec"] else {})
        if spec != old["spec"]:
            old["spec"] = spec
            old["metadata"]["generation"] += 1


def _version(deployment: Object) -> str:
    return str(deployment["spec"]["template"]["metadata"]["annotations"][names.MODEL_VERSION_ANNOTATION])
