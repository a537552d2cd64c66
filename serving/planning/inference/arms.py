"""Where each arm of an Inference stands: what it should run, what serves it, and what is in the way.

An arm's *serving* backend is the one that has been proven: it is named in the Route's segments, or (for an arm
without weight) in the Inference's status. Both are in the API, so proof survives a restart of the controller.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from serving import errors
from serving.objects import Object
from serving.planning.inference import replicas
from serving.planning.inference.observed import Problem, World
from serving.planning.inference.revision import Revision, render
from serving.resources import conditions
from serving.resources.inference import InferenceSpec, Predictor


@dataclass(frozen=True)
class Arm:
    """One predictor of the spec."""

    predictor: Predictor
    wanted: Revision | None
    """None while its ModelVersion is not ready, and where there can be none."""
    serving: str
    """Proven backend; empty until there is one."""
    model_problem: Problem | None = None
    rollout_problem: Problem | None = None
    """Why `wanted` does not serve yet."""

    @property
    def candidate(self) -> Revision | None:
        """The revision to prove, if it is not the one that serves."""
        return self.wanted if self.wanted is not None and self.wanted.name != self.serving else None


def is_accepted(world: World) -> bool:
    """Whether every live gateway (and at least one) has accepted the Route as the cache has it."""
    return bool(world.gateways) and not laggards(world)


def laggards(world: World) -> dict[str, str]:
    """Return the live gateways that have not accepted the Route, with what they said."""
    if world.route is None:
        return dict.fromkeys(world.gateways, "")
    said = {g["name"]: g for g in (world.route.get("status") or {}).get("gateways") or []}
    generation = world.route["metadata"].get("generation", 1)
    return {
        name: said.get(name, {}).get("message", "")
        for name in sorted(world.gateways)
        if said.get(name, {}).get("acceptedGeneration", 0) < generation
    }


def serving_backends(world: World) -> dict[str, str]:
    """Return arm → proven backend, also of arms that the spec no longer has but that still get traffic."""
    spec = (world.route or {}).get("spec") or {}
    arm_of = {backend["name"]: backend["arm"] for backend in spec.get("backends") or []}
    found: dict[str, str] = {}
    for predictor in (world.inference.get("status") or {}).get("predictors") or []:
        revision = predictor.get("revision", "")
        if revision and (arm_of.get(revision) == predictor["name"] or revision in world.deployments):
            found[predictor["name"]] = revision
    for segment in spec.get("segments") or []:
        found[arm_of[segment["backend"]]] = segment["backend"]
    return found


def read(world: World, spec: InferenceSpec, serving: Mapping[str, str]) -> tuple[Arm, ...]:
    """Return the arms of the spec; a candidate that has just been proven counts as serving."""
    accepted = is_accepted(world)
    return tuple(
        _read_one(world, spec, predictor, serving, accepted=accepted) for predictor in spec.predictors
    )


def _read_one(
    world: World, spec: InferenceSpec, predictor: Predictor, serving: Mapping[str, str], *, accepted: bool
) -> Arm:
    current = serving.get(predictor.name, "")
    version = world.model_versions.get(predictor.model_version)
    problem = model_problem(spec.framework, predictor.model_version, version)
    if problem is not None or version is None:
        return Arm(predictor, None, current, model_problem=problem)
    inference = world.inference["metadata"]["name"]
    try:
        wanted = render(inference, spec.framework, predictor, version)
    except errors.Permanent as error:
        return Arm(predictor, None, current, rollout_problem=Problem(error.reason, str(error)))
    return _judge(world, Arm(predictor, wanted, current), accepted=accepted)


def judge_again(world: World, arms: Iterable[Arm]) -> tuple[Arm, ...]:
    """Return the arms as they stand in another moment of the same Inference; what is proven stays so."""
    accepted = is_accepted(world)
    return tuple(
        arm if arm.wanted is None else _judge(world, replace(arm, rollout_problem=None), accepted=accepted)
        for arm in arms
    )


def _judge(world: World, arm: Arm, *, accepted: bool) -> Arm:
    candidate = arm.candidate
    if candidate is None:
        return arm
    waiting = _rollout_problem(world, arm, candidate, accepted=accepted)
    if waiting is None:
        return replace(arm, serving=candidate.name)
    return replace(arm, rollout_problem=waiting)


def model_problem(framework: str, name: str, version: Object | None) -> Problem | None:
    """Return why this ModelVersion cannot be served, or None."""
    if version is None:
        return Problem("ModelVersionNotFound", f"there is no ModelVersion {name}")
    status = version.get("status") or {}
    condition = conditions.find(status.get("conditions"), "Ready") or {}
    detail = f": {condition['message']}" if condition.get("message") else ""
    if status.get("phase") == "Failed":
        return Problem("ModelVersionFailed", f"ModelVersion {name} failed{detail}")
    if status.get("phase") != "Ready" or not status.get("image"):
        return Problem("ModelVersionBuilding", f"ModelVersion {name} is not ready yet{detail}")
    built_for = status.get("framework", "")
    if built_for and framework not in ("custom", built_for):
        return Problem(
            "FrameworkMismatch", f"ModelVersion {name} is for framework {built_for}, not {framework}"
        )
    return None


def is_probe_due(arm: Arm) -> bool:
    """Whether only a probe is missing until this arm's candidate may serve."""
    return arm.rollout_problem is not None and arm.rollout_problem.reason in ("Probing", "ProbeFailed")


def _rollout_problem(world: World, arm: Arm, candidate: Revision, *, accepted: bool) -> Problem | None:
    """Return what stands between a candidate and traffic, or None once it is proven.

    A candidate that replaces a serving revision must have all its replicas, as it takes over the whole load.
    """
    name = candidate.name
    if name in world.refused:
        return Problem("RevisionRefused", f"revision {name} was refused: {world.refused[name]}")
    waiting = replicas.problem(world, name, everything=bool(arm.serving))
    if waiting is not None:
        return waiting
    backends = ((world.route or {}).get("spec") or {}).get("backends") or []
    if not accepted or all(backend["name"] != name for backend in backends):
        return Problem("RouteNotAccepted", f"revision {name} waits for the gateways to know it")
    verdict = world.verdicts.get(name)
    if verdict is None:
        return _last_answer(world, arm, name) or Problem(
            "Probing", f"revision {name} is being probed through the gateway"
        )
    return Problem("ProbeFailed", f"revision {name}: {verdict}") if verdict else None


def _last_answer(world: World, arm: Arm, name: str) -> Problem | None:
    """Return what the status says of a failed probe of this candidate: it holds until the next one is answered."""
    for said in (world.inference.get("status") or {}).get("predictors") or []:
        if (said["name"], said.get("candidateRevision")) == (arm.predictor.name, name):
            return Problem(said["reason"], said["message"]) if said["reason"] == "ProbeFailed" else None
    return None
