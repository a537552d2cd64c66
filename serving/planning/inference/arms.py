"""The arms of an Inference: the desired and the serving revision of each, and why they differ."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from serving import errors
from serving.objects import Object
from serving.planning.gpu import mechanism as mechanisms
from serving.planning.gpu.mechanism import MechanismChoice
from serving.planning.gpu.share import Mechanism
from serving.planning.inference import replicas
from serving.planning.inference.comparison import template_edits
from serving.planning.inference.comparison.drift import template_covers
from serving.planning.inference.inference_state import InferenceState
from serving.planning.inference.observed import ObservedObjects
from serving.planning.inference.replicas import RevisionReplicas
from serving.planning.inference.revision import Revision, render
from serving.planning.models.version import blocked
from serving.planning.models.volume import VolumeSource
from serving.resources import kinds
from serving.resources.engine import Engine
from serving.resources.inference import AutoScale, InferenceSpec, Predictor
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.conditions import StatusReason

MODEL_VERSION_BLOCKED = "ModelVersionBlocked"


@dataclass(frozen=True)
class Arm:
    """One predictor of the spec."""

    predictor: Predictor
    desired: Revision | None
    """The revision of the spec; None if its ModelVersion is not ready or it cannot be rendered."""
    serving: str
    """Name of the proven revision that gets the arm's traffic; empty until there is one."""
    model_problem: StatusReason | None = None
    """Why the ModelVersion of the spec cannot be served."""
    rollout_problem: StatusReason | None = None
    """Why `desired` does not serve yet."""
    initial_replicas: int = 1
    """Replicas with which `desired` is created."""
    edit: StatusReason | None = None
    """Others have edited the candidate's Pod template, so that its replicas prove nothing."""
    mechanism: MechanismChoice | None = None
    """The mechanism of the share of a GPU of new revisions; None without a share."""

    @property
    def candidate(self) -> Revision | None:
        """The revision to prove, unless it serves already."""
        return self.desired if self.desired is not None and self.desired.name != self.serving else None

    @property
    def is_blocked(self) -> bool:
        """Whether a policy forbids the arm's model version, and no other revision serves."""
        problem = self.model_problem
        return not self.serving and problem is not None and problem.reason == MODEL_VERSION_BLOCKED

    @property
    def waits_for_probes(self) -> bool:
        """Whether the candidate lacks only successful probes before it serves."""
        return self.rollout_problem is not None and self.rollout_problem.reason in ("Probing", "ProbeFailed")

    def once_routed(self, *, is_accepted: bool) -> "Arm":
        """Return the arm as of after the plan's write of the Route.

        If that changed the Route, so that it is not `is_accepted` by the gateways, the candidate no longer
        waits for probes but for the Route.
        """
        if is_accepted or not self.waits_for_probes or self.desired is None:
            return self
        return replace(self, rollout_problem=_route_not_accepted(self.desired.name))


def read(state: InferenceState, spec: InferenceSpec) -> tuple[Arm, ...]:
    """Return the arms of the spec; a candidate that has just been proven serves."""
    return tuple(_read_arm(state, spec, predictor) for predictor in spec.predictors)


def _read_arm(state: InferenceState, spec: InferenceSpec, predictor: Predictor) -> Arm:
    serving = state.serving.get(predictor.name, "")
    version = state.observed.model_versions.get(predictor.model_version)
    engine = state.observed.engines.get(spec.framework)
    problem = model_problem(spec.framework, predictor.model_version, version, engine)
    if problem is not None or version is None:
        return Arm(predictor, None, serving, model_problem=problem)
    choice = mechanisms.choose(predictor, state.observed.cluster)
    try:
        desired = _desired(state, spec.framework, predictor, version, serving, choice=choice)
    except errors.Permanent as error:
        return Arm(predictor, None, serving, rollout_problem=StatusReason(error.reason, str(error)))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # The template's containers are free-form; one arm's mistake must not block the others.
        message = f"the Pod template cannot be rendered: {error!r}"
        return Arm(predictor, None, serving, rollout_problem=StatusReason("TemplateInvalid", message))
    initial = _initial_replicas(predictor.auto_scale, state.replicas.get(serving))
    arm = Arm(predictor, desired, serving, initial_replicas=initial, mechanism=choice)
    if arm.candidate is None:
        return replace(arm, rollout_problem=_refusal(state.observed, desired.name))
    arm = replace(arm, edit=_edit(state.observed, desired))
    rollout_problem = _rollout_problem(state, arm, desired)
    if rollout_problem is None:
        return replace(arm, serving=desired.name)
    return replace(arm, rollout_problem=rollout_problem)


def _desired(
    state: InferenceState,
    framework: str,
    predictor: Predictor,
    version: Object,
    serving: str,
    *,
    choice: MechanismChoice | None,
) -> Revision:
    """Return the revision of the spec, with the source of the model's files and the GPU mechanism of new
    revisions.

    Unless the configuration or the spec sets them, a serving revision keeps its own, so that a change of the
    nodes replaces no replica. A candidate with a copy keeps the copy, as it works on every node. A candidate
    keeps its mechanism while the nodes have the resources of none.

    Raises:
        errors.Permanent: as `render`.
    """
    observed = state.observed

    def rendered(source: VolumeSource, mechanism: Mechanism | None) -> Revision:
        return render(
            state.name,
            framework,
            mechanisms.with_mechanism(predictor, mechanism),
            version,
            observed.engines.get(framework),
            images=observed.runtime_images,
            volume=source,
        )

    source = observed.model_volume.source
    allowed = mechanisms.alternatives(choice, predictor)
    chosen = rendered(source, allowed[0])
    if chosen.name == serving:
        return chosen

    def others() -> Iterator[Revision]:
        other_source: VolumeSource = "copy" if source == "image" else "image"
        for mechanism in allowed:
            for each in (source,) if observed.model_volume.is_set else (source, other_source):
                if (each, mechanism) == (source, chosen.mechanism):
                    continue
                try:
                    yield rendered(each, mechanism)
                except errors.Permanent:
                    continue  # the template sets a variable of this mechanism, which therefore never served

    def is_kept(other: Revision) -> bool:
        works = other.volume in (source, "copy")
        is_same = other.mechanism == chosen.mechanism or (choice is not None and not choice.is_offered)
        return works and is_same and other.name in observed.deployments

    alternatives = list(others())
    for other in alternatives:
        if other.name == serving:
            return other
    return next(filter(is_kept, alternatives), chosen)


def _initial_replicas(auto_scale: AutoScale, serving: RevisionReplicas | None) -> int:
    """Return as many replicas as the serving revision has, within the bounds of `auto_scale`.

    At least one: a revision is started once to be proven, even if the arm may be at zero. If another
    autoscaler manages the arm, `maxReplicas` does not apply.
    """
    least = max(auto_scale.min_replicas, 1)
    if serving is None:
        return least
    most = auto_scale.max_replicas if auto_scale.managed else serving.desired
    return max(least, min(serving.desired, most))


def model_problem(
    framework: str, name: str, version: Object | None, engine: Engine | None = None
) -> StatusReason | None:
    """Return why the ModelVersion `name` cannot be served, or None.

    Args:
        framework: name of a runtime or an engine, or `custom`.
        name: the ModelVersion's name.
        version: the ModelVersion; None if it does not exist.
        engine: the engine, if the framework is one.
    """
    if version is None:
        return StatusReason("ModelVersionNotFound", f"there is no ModelVersion {name}")
    if message := blocked(version):
        return StatusReason(MODEL_VERSION_BLOCKED, message)
    status = version.get("status") or {}
    ready = conditions.find(status.get("conditions"), "Ready") or {}
    detail = f": {ready['message']}" if ready.get("message") else ""
    if status.get("phase") == "Failed":
        return StatusReason("ModelVersionFailed", f"ModelVersion {name} failed{detail}")
    if status.get("phase") != "Ready" or not status.get("image"):
        return StatusReason("ModelVersionBuilding", f"ModelVersion {name} is not ready yet{detail}")
    built_for = status.get("framework", "")
    served = {framework, *(engine.serves if engine is not None else ())}
    if built_for and framework != "custom" and built_for not in served:
        message = f"ModelVersion {name} is for framework {built_for}, not {framework}"
        return StatusReason("FrameworkMismatch", message)
    return None


def _rollout_problem(state: InferenceState, arm: Arm, candidate: Revision) -> StatusReason | None:
    """Return why a candidate gets no traffic; None once it is proven.

    A candidate that replaces a serving revision needs all its replicas, as it takes over the whole load.
    """
    name = candidate.name
    if (refusal := _refusal(state.observed, name)) is not None:
        return refusal
    counts = state.replicas.get(name, RevisionReplicas(desired=arm.initial_replicas))
    if not counts.has_present_template:
        counts = replace(counts, ready=0)  # the ready ones may be of an edited template
    not_ready = replicas.problem(name, counts, all_ready=bool(arm.serving))
    if not_ready is not None:
        return not_ready
    if not state.is_accepted or name not in state.backends:
        return _route_not_accepted(name)
    failure = state.verdicts.get(name)
    is_proven = failure == ""
    # An edit makes even successful probes worthless.
    if arm.edit is not None or is_proven:
        return arm.edit
    if failure is None:
        return StatusReason("Probing", f"revision {name} is being probed through the gateways")
    return StatusReason("ProbeFailed", f"revision {name}, on port {candidate.port.number}: {failure}")


def _edit(observed: ObservedObjects, candidate: Revision) -> StatusReason | None:
    """Return that others have edited the candidate's Pod template, or None.

    Edits that a webhook repeats at each write are accepted: they would hold the candidate up forever.
    """
    deployment = observed.deployments.get(candidate.name)
    if deployment is None or candidate.name in observed.put_back_in_vain:
        return None
    template, stored = candidate.template, deployment["spec"]["template"]
    edits = template_edits.edits_by_others(deployment, template, observed.field_manager)
    # A field that others have removed is in no `edits`: only the comparison shows it.
    if not edits and template_covers(stored, template):
        return None
    message = f"revision {candidate.name}: its Pod template was edited ({template_edits.describe(edits)})"
    return StatusReason("TemplateEdited", message)


def _refusal(observed: ObservedObjects, name: str) -> StatusReason | None:
    """Return that the API has just rejected a revision's Deployment or Service, or None."""
    if name in observed.refused:
        return StatusReason("RevisionRefused", f"revision {name} was refused: {observed.refused[name]}")
    service = observed.children_refused.get((kinds.SERVICE, name))
    if service is None:
        return None
    return StatusReason("RevisionRefused", f"revision {name}: its Service was refused: {service.message}")


def _route_not_accepted(name: str) -> StatusReason:
    return StatusReason(
        "RouteNotAccepted", f"revision {name} waits until the gateways have accepted its Route"
    )
