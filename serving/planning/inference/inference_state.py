"""The state that an Inference is planned from, derived once from the observed objects."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from serving.objects import Object
from serving.planning.inference import replicas
from serving.planning.inference.comparison.drift import routes_alike
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.plan import Ensure
from serving.planning.inference.replicas import RevisionReplicas
from serving.planning.models import retention, version
from serving.resources import kinds
from serving.resources.inference import AutoScale


@dataclass(frozen=True)
class InferenceState:
    """The state of one Inference."""

    observed: ObservedObjects
    """The objects themselves, for code that compares, renders or deletes them."""
    backends: Mapping[str, Object]
    """The Route's backends, by name."""
    segments: Sequence[Object]
    """The Route's hash ring, in order."""
    gateway_statuses: Mapping[str, Object]
    """The live gateways' entries in the Route's status, by gateway, in the order of the status."""
    lagging: Mapping[str, str]
    """Live gateways that have not accepted the Route, with their messages."""
    verdicts: Mapping[str, str]
    """Results of probes by revision: the failure at a live gateway, or empty if the probes of all live
    gateways have succeeded. Other revisions have no verdict yet."""
    replicas: Mapping[str, RevisionReplicas]
    """By revision, for revisions that have a Deployment."""
    serving: Mapping[str, str]
    """Arm → proven backend, also for arms that have left the spec and still get traffic."""
    blocked: frozenset[str] = frozenset()
    """Revisions whose ModelVersion a policy blocks: they serve no arm, so that they are retired."""

    @property
    def name(self) -> str:
        """Name of the Inference."""
        name: str = self.observed.inference["metadata"]["name"]
        return name

    @property
    def is_accepted(self) -> bool:
        """Whether every live gateway, and at least one, has accepted the Route."""
        return bool(self.observed.gateways) and not self.lagging

    def was_on_demand(self, revision: str) -> bool:
        """Whether the revision's backend is on demand in the stored Route."""
        return bool(self.backends.get(revision, {}).get("onDemand"))

    def is_on_demand(self, revision: str, auto_scale: AutoScale) -> bool:
        """Whether requests to a revision may have to wait for a replica: it may be at zero, or still is."""
        if auto_scale.may_be_zero:
            return True
        return self.was_on_demand(revision) and not self.replicas.get(revision, RevisionReplicas()).ready

    def after(self, writes: Iterable[Ensure]) -> "InferenceState":
        """Return the state as of after these writes.

        A new revision has no replica yet, and no gateway has accepted a Route whose spec changed.
        """
        state = self
        replicas_after = dict(self.replicas)
        for ensure in writes:
            if ensure.kind is kinds.DEPLOYMENT:
                created = RevisionReplicas(desired=ensure.at_creation["spec"]["replicas"])
                replicas_after.setdefault(ensure.object["metadata"]["name"], created)
            elif ensure.kind is kinds.ROUTE:
                state = self._after_route(ensure.object["spec"])
        return _with_serving(replace(state, replicas=replicas_after))

    def _after_route(self, spec: Object) -> "InferenceState":
        backends = {backend["name"]: backend for backend in spec["backends"]}
        state = replace(self, backends=backends, segments=spec["segments"])
        before = self.observed.route
        if before is not None and routes_alike(before["spec"], spec):
            return state
        statuses = self.gateway_statuses
        lagging = {name: statuses.get(name, {}).get("message", "") for name in sorted(self.observed.gateways)}
        return replace(state, lagging=lagging)


def derive(observed: ObservedObjects) -> InferenceState:
    """Return the state of an Inference."""
    route = observed.route or {}
    spec = route.get("spec") or {}
    backends = {backend["name"]: backend for backend in spec.get("backends") or []}
    segments = spec.get("segments") or []
    statuses = {
        status["name"]: status
        for status in (route.get("status") or {}).get("gateways") or []
        if status["name"] in observed.gateways
    }
    generation = route["metadata"].get("generation", 1) if route else None  # None: there is no Route yet
    lagging = {
        name: statuses.get(name, {}).get("message", "")
        for name in sorted(observed.gateways)
        if generation is None or statuses.get(name, {}).get("acceptedGeneration", 0) < generation
    }
    replicas_by_revision = {
        name: replicas.read(deployment, observed.pods.get(name, ()), observed.runtime_images)
        for name, deployment in observed.deployments.items()
    }
    return _with_serving(
        InferenceState(
            observed=observed,
            backends=backends,
            segments=segments,
            gateway_statuses=statuses,
            lagging=lagging,
            verdicts=_verdicts(observed.gateways, statuses),
            replicas=replicas_by_revision,
            serving={},
            blocked=_blocked(observed, backends),
        )
    )


def _verdicts(gateways: Collection[str], statuses: Mapping[str, Object]) -> dict[str, str]:
    """Return `InferenceState.verdicts` from the probes that live gateways report."""
    failures: dict[str, str] = {}
    successes: Counter[str] = Counter()
    for name in sorted(gateways):
        for probe in statuses.get(name, {}).get("probes") or []:
            backend, failure = probe["backend"], probe.get("message") or ""
            if failure:
                failures.setdefault(backend, failure if len(gateways) == 1 else f"gateway {name}: {failure}")
            else:
                successes[backend] += 1
    return {backend: "" for backend, count in successes.items() if count == len(gateways)} | failures


def _with_serving(state: InferenceState) -> InferenceState:
    """Return the state with the serving revisions that follow from its other fields."""
    proven = _proven(state.observed.inference, state.backends, state.segments, state.replicas)
    serving = {arm: revision for arm, revision in proven.items() if revision not in state.blocked}
    return replace(state, serving=serving)


def _blocked(observed: ObservedObjects, backends: Mapping[str, Object]) -> frozenset[str]:
    """Return the revisions whose ModelVersion a policy blocks, by their Deployments and by the Route."""
    versions = {name for name, stored in observed.model_versions.items() if version.must_stop(stored)}
    by_route = {name for name, backend in backends.items() if backend.get("modelVersion") in versions}
    by_deployment = {
        name
        for name, deployment in observed.deployments.items()
        if not versions.isdisjoint(retention.versions_of_deployment(deployment))
    }
    return frozenset(by_route | by_deployment)


def _proven(
    inference: Object,
    backends: Mapping[str, Object],
    segments: Sequence[Object],
    revisions_with_deployment: Collection[str],
) -> dict[str, str]:
    """Return arm → proven backend.

    A backend is proven if the Route's segments name it, or (for an arm without weight) the Inference's
    status, unless neither its entry in the Route nor its Deployment exists any more. Both are in the API, so
    proof survives a restart of the controller.
    """
    proven: dict[str, str] = {}
    for predictor in (inference.get("status") or {}).get("predictors") or []:
        arm, revision = predictor["name"], predictor.get("revision", "")
        if revision and (
            backends.get(revision, {}).get("arm") == arm or revision in revisions_with_deployment
        ):
            proven[arm] = revision
    for segment in segments:
        proven[backends[segment["backend"]]["arm"]] = segment["backend"]
    return proven
