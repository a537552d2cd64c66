"""The hourly cost of a replica, from its resources and their prices, in the currency of the prices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serving.errors import Permanent
from serving.planning.gpu import pod as gpu_pod
from serving.planning.inference.revision import CONTAINER
from serving.resources import names
from serving.resources.formats import quantity
from serving.resources.inference import Gpu, Resources
from serving.resources.tuning.experiment import Prices, ProfilingExperimentSpec
from tuner.specs.space import Space

Number = float | NDArray[np.float64]
_GIB = 2.0**30
_NEED_COST = frozenset({"throughputPerCost", "tokensPerCost", "costAtRate", "cost"})
"""Objectives that involve cost."""


@dataclass(frozen=True)
class Amounts:
    """The resources of one replica: each a number, or an array over many specs."""

    cpu: Number = 0.0
    """Cores."""
    memory: Number = 0.0
    """Bytes."""
    gpu_memory: Number = 0.0
    """Bytes of one GPU."""
    gpu_cores: Number = 0.0
    """Percent of one GPU."""
    gpus: Number = 0.0
    """Whole GPUs; 0 for a replica with a share of one."""


class GrantedShare(NamedTuple):
    """A share of one GPU as its mechanism grants it; 0 for no limit."""

    memory: float
    """Bytes."""
    cores: float
    """Percent."""


def amounts(containers: Sequence[Mapping[str, Any]], resources: Resources) -> Amounts:
    """Return the CPU and memory of a Pod's containers, and the predictor's share of a GPU, else whole GPUs.

    Raises:
        Permanent: GpuShareInvalid, the share does not exist; TargetInvalid, a limit is no quantity.
    """
    limits = [_limits(container) for container in containers]
    share = GrantedShare(0.0, 0.0) if resources.gpu is None else _granted(resources.gpu)
    return Amounts(
        cpu=sum(_amount(limit, "cpu") for limit in limits),
        memory=sum(_amount(limit, "memory") for limit in limits),
        gpu_memory=share.memory,
        gpu_cores=share.cores,
        gpus=sum(_amount(limit, names.GPU_RESOURCE) for limit in limits) if resources.gpu is None else 0.0,
    )


def unlimited(containers: Sequence[Mapping[str, Any]], resources: Iterable[str]) -> tuple[str, ...]:
    """Return which of these resources, of cpu and memory, have no limit and no request in the predictor.

    Its cost is then unknown. Unlimited resources of other containers are in no spec's cost.
    """
    (own,) = (_limits(container) for container in containers if container["name"] == CONTAINER)
    return tuple(name for name in resources if name in ("cpu", "memory") and name not in own)


def cost_per_hour(has: Amounts, prices: Prices) -> Number:
    """Return the hourly cost; a resource without a price is free.

    A share of a GPU costs the larger of its shares of memory and cores, as others cannot use the rest. With a
    limit on memory alone, and without `prices.gpu_memory` to divide by, it costs the whole GPU.

    Raises:
        Permanent: PricesMissing, `prices.gpu_memory` is 0 or no quantity.
    """
    total = has.cpu * _price(prices.cpu) + has.memory / _GIB * _price(prices.memory)
    if prices.gpu is None:
        return total
    shares = has.gpu_cores / 100.0
    if prices.gpu_memory is not None:
        whole = _number(prices.gpu_memory, "spec.prices.gpuMemory", "PricesMissing")
        if whole <= 0:
            raise Permanent(
                "PricesMissing", f"spec.prices.gpuMemory: must be above 0, got {prices.gpu_memory!r}"
            )
        shares = np.maximum(shares, has.gpu_memory / whole)
    else:
        shares = np.where((np.asarray(has.gpu_memory) > 0) & (np.asarray(shares) == 0), 1.0, shares)
    return total + (shares + has.gpus) * _price(prices.gpu)


def costs(first: Amounts, resources: Resources, space: Space, prices: Prices) -> NDArray[np.float64]:
    """Return the hourly cost of a replica of each spec of a space.

    Args:
        first: resources of all containers of a Pod of spec 0; the other specs differ from it.
        resources: of the predictor with the settings of spec 0.
        space: its `resource` axes have the values of other specs.
        prices: of the experiment.

    Raises:
        Permanent: GpuShareInvalid, the share of a spec does not exist; PricesMissing, as `cost_per_hour`.
    """
    has = first
    ranks = space.ranks()
    for column, axis in enumerate(space.axes):
        if axis.label in ("resource/cpu", "resource/memory"):
            values = np.array([float(quantity.parse(text)) for text in axis.values])
            beyond_first = values[ranks[:, column]] - values[0]  # (n,)
            if axis.name == "cpu":
                has = replace(has, cpu=has.cpu + beyond_first)
            else:
                has = replace(has, memory=has.memory + beyond_first)
    if resources.gpu is not None:
        has = _with_shares(has, resources.gpu, space)
    return np.broadcast_to(np.asarray(cost_per_hour(has, prices), dtype=np.float64), (space.size,)).copy()


def costs_from_trial(
    spec: ProfilingExperimentSpec, space: Space, row: int, cost: float
) -> NDArray[np.float64]:
    """Return the hourly cost of a replica of each spec, from that of a measured one.

    Unlike `costs`, it needs no target. A share of a GPU counts as it is asked for, without the rounding of a
    mechanism that only the target names.

    Args:
        spec: the experiment.
        space: its space.
        row: of the measured spec.
        cost: hourly cost of the measured spec's replica.

    Raises:
        Permanent: GpuShareInvalid, the share of a spec does not exist; PricesMissing, as `cost_per_hour`.
    """
    resources = spec.target.resources or Resources()
    gpu = {} if resources.gpu is None else resources.gpu.model_dump(exclude_none=True)
    tuned = {
        axis.name.removeprefix("gpu."): axis.values[0]
        for axis in space.axes
        if axis.label in ("resource/gpu.memory", "resource/gpu.cores")
    }
    if tuned:
        resources = resources.model_copy(update={"gpu": Gpu.model_validate(gpu | tuned)})
    relative = costs(Amounts(), resources, space, spec.prices)
    return np.asarray(relative + (cost - relative[row]))


def _with_shares(has: Amounts, gpu: Gpu, space: Space) -> Amounts:
    """Return the resources with the granted GPU share of each spec: `gpu` with the spec's tuned parts."""
    columns = [
        i for i, axis in enumerate(space.axes) if axis.label in ("resource/gpu.memory", "resource/gpu.cores")
    ]
    if not columns:
        return has
    # A mechanism renders one share at a time: render each distinct one once, not that of each spec.
    combinations, combination_of_spec = np.unique(space.ranks()[:, columns], axis=0, return_inverse=True)
    shares = np.empty((len(combinations), 2))  # columns as the fields of GrantedShare
    for row, ranks in enumerate(combinations):
        share = gpu.model_dump(exclude_none=True)
        for column, rank in zip(columns, ranks, strict=True):
            share[space.axes[column].name.removeprefix("gpu.")] = space.axes[column].values[rank]
        shares[row] = _granted(Gpu.model_validate(share))
    by_spec = shares[combination_of_spec.reshape(-1)]
    return replace(has, gpu_memory=by_spec[:, 0], gpu_cores=by_spec[:, 1])


def _granted(gpu: Gpu) -> GrantedShare:
    """Return the share that the mechanism grants, which may be larger than the requested one."""
    share = gpu_pod.render(gpu).granted
    return GrantedShare(memory=float(share.memory or 0), cores=float(share.cores or 0))


def check(spec: ProfilingExperimentSpec, space: Space, hourly: NDArray[np.float64]) -> None:
    """Refuse an experiment that involves cost without the prices of its resources.

    Args:
        spec: the experiment.
        space: its space.
        hourly: (n,) hourly cost of a replica of each spec, from `costs`.

    Raises:
        Permanent: PricesMissing, with the field.
    """
    metric = spec.objective.objective_metric_name
    if metric not in _NEED_COST and spec.max_cost is None:
        return
    reason = f"the objective {metric} counts cost" if metric in _NEED_COST else "maxCost limits cost"
    for axis in space.axes:
        if axis.category != "resource":
            continue
        field = axis.name.split(".", maxsplit=1)[0]
        if getattr(spec.prices, field) is None:
            raise Permanent(
                "PricesMissing", f"spec.prices.{field}: is missing; {axis.name} is tuned, and {reason}"
            )
        if axis.name == "gpu.memory":
            _check_gpu_memory(spec.prices, axis.values[-1], reason)
    if not (hourly > 0).all():
        raise Permanent(
            "PricesMissing",
            f"spec.prices: a replica would cost nothing, and {reason}; set prices for its resources, and"
            " limits of its container",
        )


def _check_gpu_memory(prices: Prices, largest: str, reason: str) -> None:
    if prices.gpu_memory is None:
        message = (
            f"spec.prices.gpuMemory: is missing; gpu.memory is tuned, and {reason}:"
            " set the memory of a whole GPU"
        )
        raise Permanent("PricesMissing", message)
    if quantity.parse(largest) > quantity.parse(prices.gpu_memory):
        message = f"spec.prices.gpuMemory: a whole GPU has {prices.gpu_memory}, and {largest} of it is tuned"
        raise Permanent("PricesMissing", message)


def _price(text: str | None) -> float:
    return float(text) if text is not None else 0.0


def _amount(limits: Mapping[str, Any], name: str) -> float:
    return _number(str(limits.get(name) or 0), f"resources.{name} of a container", "TargetInvalid")


def _number(text: str, field: str, reason: str) -> float:
    try:
        return float(quantity.parse(text))
    except ValueError as error:
        raise Permanent(reason, f"{field}: {error}") from error


def _limits(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a container, or its requests where it has no limit."""
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
