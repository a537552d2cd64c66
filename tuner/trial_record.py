"""A Trial, read once for planning and report: its row in the space, objective and observation. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from serving.errors import SpaceInvalid
from serving.objects import Object
from serving.resources.tuning.experiment import Constraint, Objective
from serving.resources.tuning.trial import FINISHED, Estimate, TrialSpec, TrialStatus
from tuner.objective import objective_value
from tuner.observation import BREAKS_CONSTRAINT, UNINFORMATIVE, observation_of
from tuner.search.problem import Floats, TrialObservation
from tuner.specs.space import Space

Meets = Literal["Yes", "No", "Unsure", ""]
"""Whether the constraints are met; Unsure if a bound lies within the 95 % interval of its value, empty if
nothing was measured."""
SpecKey = int | tuple[tuple[str, str, str], ...]
"""Identity of a spec: its row in the space; outside the space its settings as (category, name, value)."""
MEASURED = "Measured"
"""The reason of a trial that was measured completely: only such trials are compared."""
LOAD_FAILED = "LoadFailed"
"""The reason of a trial whose load could not be generated."""
LOAD_RESTARTED_NOTE = "LoadRestarted"
"""Prefix of a trial's note that its load generator died and was started again."""
LOAD_RETRIED_NOTE = "LoadRetried"
"""Prefix of a trial's note that the replica did not describe its model, and was asked again."""
UNEXPECTED_ERROR_NOTE = "UnexpectedError"
"""Prefix of a trial's note that its measurement ended with an error that no code expects."""
_MAY_SUCCEED = (LOAD_RESTARTED_NOTE, LOAD_RETRIED_NOTE, UNEXPECTED_ERROR_NOTE)
"""Prefixes of the notes of a trial with the reason LOAD_FAILED after which another trial of the spec may
succeed."""


@dataclass(frozen=True)
class TrialRecord:
    """One Trial of an experiment."""

    name: str
    spec: TrialSpec
    status: TrialStatus
    index: int | None = None
    """The row of its spec in the space; None outside the space."""
    objective: Estimate | None = None
    """Value of `objective_value` at the load of the result: not a logarithm; None without a result, or if it
    cannot be computed."""
    observation: TrialObservation | None = None
    """For the search; None while the trial runs, outside the space, or without information about its spec."""
    stale: bool = False
    """Whether the trial measured another model than the target has now: it only uses up budget."""

    @property
    def key(self) -> SpecKey:
        """Identity of its spec."""
        if self.index is not None:
            return self.index
        return tuple(sorted((s.category, s.name, s.value) for s in self.spec.settings))

    @property
    def is_over(self) -> bool:
        """Whether the trial has ended."""
        return self.status.phase in FINISHED

    @property
    def is_complete(self) -> bool:
        """Whether it was measured completely, so that it can be compared."""
        return self.status.reason == MEASURED and self.objective is not None

    @property
    def is_decided(self) -> bool:
        """Whether it determined if its spec meets the constraints."""
        return self.status.reason in (MEASURED, BREAKS_CONSTRAINT) and self.status.result is not None

    @property
    def meets(self) -> Meets:
        """Whether it met the constraints."""
        return self.status.result.meets if self.status.result is not None else ""

    @property
    def is_uninformative(self) -> bool:
        """Whether it ended without information about its spec."""
        return self.is_over and self.status.reason in UNINFORMATIVE

    @property
    def failed_to_load(self) -> bool:
        """Whether it ended because its load could not be generated."""
        return self.is_over and self.status.reason == LOAD_FAILED

    @property
    def load_is_invalid(self) -> bool:
        """Whether no trial of the experiment can generate its load, as the experiment's load is invalid.

        A failure that may be temporary leaves a note with a prefix of _MAY_SUCCEED.
        """
        return self.failed_to_load and not any(note.startswith(_MAY_SUCCEED) for note in self.status.notes)

    @property
    def throughput(self) -> float | None:
        """Answers per second at the load of the result."""
        return self.status.result.throughput.value if self.status.result is not None else None


def parse(trial: Object) -> TrialRecord:
    """Return a Trial without row, objective and observation, for which `read` needs its experiment.

    Raises:
        pydantic.ValidationError: not a Trial.
    """
    status = TrialStatus.model_validate(trial.get("status") or {})
    return TrialRecord(trial["metadata"]["name"], TrialSpec.model_validate(trial["spec"]), status)


def read(
    trial: Object,
    space: Space,
    objective: Objective,
    constraints: Sequence[Constraint],
    *,
    stale: bool = False,
    costs: Floats | None = None,
) -> TrialRecord:
    """Return a Trial with its row, objective and observation; a stale Trial has a row only.

    Args:
        trial: the object.
        space: of the experiment.
        objective: of the experiment.
        constraints: of the experiment.
        stale: whether it measured another model than the target has now.
        costs: (n,) hourly cost of each spec of the space, at which the observation's objective is computed;
            None for the cost in the Trial's own spec.

    Raises:
        pydantic.ValidationError: not a Trial.
    """
    record = parse(trial)
    spec, status = record.spec, record.status
    try:
        index: int | None = space.index(spec.settings)
    except SpaceInvalid:
        index = None  # the spec that runs today may lie outside the space, or the space was changed
    value, observation = None, None
    if not stale and status.result is not None:
        value = objective_value(objective, status.result, spec.cost_per_hour, spec.batch)
    if not stale and index is not None:
        cost = spec.cost_per_hour if costs is None else float(costs[index])
        observation = observation_of(spec, status, index, objective, constraints, cost_per_hour=cost)
    return TrialRecord(record.name, spec, status, index, value, observation, stale)
