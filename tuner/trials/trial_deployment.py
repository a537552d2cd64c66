"""A trial's Deployment, and the notes about the conditions of its measurement. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kubernetes import owner_references, pod_resources
from serving.resources.tuning.trial import TrialSpec, Window
from tuner.trials import gpu_notes
from tuner.trials.cores import Cores

_PERIOD = 0.1
"""Seconds of the default CFS period, in each of which the kernel grants the CPU limit anew. A window may
begin and end within periods, and so use the grant of one period more than its length holds."""
_CPU_SLACK = 1.05
"""Factor on the CPU limit before a note, for clocks: of 2,553 windows of 0.25 to 3 s
(`benchmarks/live_tuning.py`) none used more than 0.99 of the limit."""
_MEMORY_SLACK = 1.02
"""Factor on the memory limit before a note: the kernel counts pages in batches for each core."""


def deployment(trial: Object, spec: TrialSpec, cores: Cores, grace_seconds: int) -> Object:
    """Return the Deployment of one replica, owned by the trial.

    It has no labels of a predictor, so that no predictor's controller adopts it. `grace_seconds` is the
    termination grace period of its Pod.
    """
    meta = trial["metadata"]
    labels = {names.TRIAL_LABEL: meta["name"], names.EXPERIMENT_LABEL: spec.experiment}
    spec_metadata = spec.template.get("metadata") or {}
    annotations = {**(spec_metadata.get("annotations") or {}), names.CPUSET_ANNOTATION: cores.cpuset}
    template = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {**spec.template["spec"], "terminationGracePeriodSeconds": grace_seconds},
    }
    return {
        "apiVersion": kinds.DEPLOYMENT.api_version,
        "kind": kinds.DEPLOYMENT.kind,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {**labels, names.MANAGED_BY_LABEL: "slipway"},
            "ownerReferences": [owner_references.controller_reference(kinds.TRIAL, trial)],
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {names.TRIAL_LABEL: meta["name"]}},
            "template": template,
        },
    }


def notes_before(spec: TrialSpec, cores: Cores) -> list[str]:
    """Return the notes before the measurement: on a share of a GPU, a shared core, and too few cores."""
    notes = gpu_notes.before(spec.template)
    if cores.shared:
        notes.append("GeneratorShared: this machine has one core, which replica and load generator shared")
    limit = pod_resources.total(spec.template["spec"], "limits", "cpu")
    if limit is not None and limit > len(cores.replica):
        notes.append(f"FewerCores: the limit is {limit:f} cores, but the replica had {len(cores.replica)}")
    return notes


def notes_after(spec: TrialSpec, windows: Sequence[Window]) -> list[str]:
    """Return the notes after the measurement: on limits that the usage exceeded, and on unknown GPU usage."""
    notes = gpu_notes.after(spec.template, windows)
    memory = max((window.usage.memory_bytes for window in windows), default=0)
    cpu_limit, memory_limit = (
        pod_resources.total(spec.template["spec"], "limits", resource) for resource in ("cpu", "memory")
    )
    if cpu_limit is not None:
        over = [window.usage.cpu_cores for window in windows if _exceeds(window, float(cpu_limit))]
        notes += [f"LimitNotEnforced: it used {max(over):.2f} cores of {cpu_limit:f}"] if over else []
    if memory_limit is not None and memory > float(memory_limit) * _MEMORY_SLACK:
        notes.append(f"LimitNotEnforced: it used {memory} bytes of memory of {memory_limit:.0f}")
    return notes


def _exceeds(window: Window, limit: float) -> bool:
    """Return whether a window used more CPU time than a limit in cores allows."""
    share_of_one_more_period = _PERIOD / max(window.seconds, _PERIOD)
    return window.usage.cpu_cores > limit * _CPU_SLACK * (1 + share_of_one_more_period)


def notes_on_failures(requests: int, errors: Mapping[str, int]) -> list[str]:
    """Return a note with the number of failed requests and the most frequent error; none without failures.

    Args:
        requests: number of requests, failed ones included.
        errors: number of failed requests by the text of their error.
    """
    if not errors:
        return []
    most = max(errors, key=lambda text: errors[text])
    return [f"RequestsFailed: {sum(errors.values())} of {requests}; most often, {errors[most]} times: {most}"]


def notes_on_disturbance(others: Iterable[float], allowed: float) -> list[str]:
    """Return a note if other processes used the replica's cores.

    Args:
        others: share of these cores' time that other processes used, for each window.
        allowed: the largest share without a note.
    """
    most = max(others, default=0.0)
    if most <= allowed:
        return []
    return [
        f"MachineBusy: other processes used up to {most:.0%} of the replica's cores; alone it may do more"
    ]
