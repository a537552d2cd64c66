"""The space of an experiment: a finite grid of specs with numbered rows, each axis on its natural scale.

It holds no results and chooses nothing. An invalid space is refused with field, rule and value.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from serving.errors import SpaceInvalid
from serving.resources import names
from serving.resources.tuning.experiment import Category, Parameter, ProfilingExperimentSpec, Setting
from tuner.specs import values
from tuner.specs.values import POINTS, Value

_MIB = Decimal(2**20)


@dataclass(frozen=True)
class ValueRange:
    """The allowed values of a parameter, in natural units."""

    least: Decimal
    grain: Decimal
    """Every value is a whole multiple of this."""
    rule: str
    most: Decimal | None = None
    digits_only: bool = False
    """The destination reads no suffix: `1k` is applied as `1000`."""


RESOURCES: Mapping[str, ValueRange] = {
    "cpu": ValueRange(
        Decimal("0.001"), Decimal("0.001"), "whole thousandths of a core above 0, as in 500m or 2"
    ),
    "memory": ValueRange(_MIB, Decimal(1), "whole bytes and at least 1Mi, as in 512Mi"),
    "gpu.memory": ValueRange(_MIB, Decimal(1), "whole bytes and at least 1Mi, as in 4Gi"),
    "gpu.cores": ValueRange(
        Decimal(1), Decimal(1), "whole percent of a GPU from 1 to 100", Decimal(100), digits_only=True
    ),
}
BATCHING: Mapping[str, ValueRange] = {
    "batchSize": ValueRange(
        Decimal(1), Decimal(1), "a whole number from 1 to 1024", Decimal(1024), digits_only=True
    ),
    "timeout": ValueRange(Decimal(0), Decimal("1e-9"), "a duration of at most 10s, as in 2ms", Decimal(10)),
}
_FIXED_ENV = frozenset(
    {
        names.MODEL_NAME_ENV,
        names.MODEL_VERSION_ENV,
        names.MODEL_DIR_ENV,
        names.MODEL_DIGEST_ENV,
        names.MODEL_FILES_DIGEST_ENV,
        names.MODEL_SEALED_ENV,
        "POD_IP",
        "HOST",
        "PORT",
    }
)
"""Variables with the model of a replica and its address."""
_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""k8s.io/apimachinery/pkg/util/validation, IsEnvVarName."""
_ARGUMENT = re.compile(r"-{0,2}[a-zA-Z0-9][-._a-zA-Z0-9]*")
_WHOLE = Decimal(1)

Scale = Literal["log", "linear", "none"]
"""Scale of an axis; categories have no order and no scale."""


@dataclass(frozen=True)
class SpaceAxis:
    """One parameter with its values: ascending if ordered, else as the user listed them."""

    category: Category
    name: str
    values: tuple[str, ...]
    positions: tuple[float, ...]
    """Position of each value: the amount or its log2, in natural units (cores, bytes, seconds); the rank
    without an order."""
    scale: Scale

    @property
    def ordered(self) -> bool:
        """Whether its values have an order."""
        return self.scale != "none"

    @property
    def label(self) -> str:
        """`resource/cpu`, for messages."""
        return f"{self.category}/{self.name}"


@dataclass(frozen=True)
class Space:
    """All combinations of the axes' values; spec 0 has the first of each, the last axis changes fastest."""

    axes: tuple[SpaceAxis, ...]

    @classmethod
    def of(cls, spec: ProfilingExperimentSpec) -> "Space":
        """Return the space of an experiment.

        Raises:
            SpaceInvalid: with the field, the rule and the value.
        """
        axes: dict[tuple[str, str], SpaceAxis] = {}
        for i, group in enumerate(spec.tunable_parameters):
            for j, parameter in enumerate(group.parameters):
                path = f"spec.tunableParameters[{i}].parameters[{j}]"
                key = (group.category, flag(parameter.name) if group.category == "args" else parameter.name)
                if key in axes:
                    raise SpaceInvalid(f"{path}.name", f"{key[1]} is tuned twice in {group.category}")
                axes[key] = _axis(path, group.category, parameter)
        space = cls(tuple(axes.values()))
        if space.size > POINTS:
            counts = " x ".join(str(len(axis.values)) for axis in space.axes)
            raise SpaceInvalid(
                "spec.tunableParameters",
                f"{counts} are {space.size:,} specs; at most {POINTS:,} can be searched:"
                " use larger steps, or powers",
            )
        return space

    @property
    def size(self) -> int:
        """Number of specs."""
        return math.prod(len(axis.values) for axis in self.axes)

    def aligned_with(self, other: "Space") -> "Space | None":
        """Return this space with axes and categories in another's order, to compare specs of both.

        Categories that the other lacks follow its own. None if the axes differ in parameters or scales.
        """
        mine = {axis.label: axis for axis in self.axes}
        if mine.keys() != {axis.label for axis in other.axes}:
            return None
        pairs = [(mine[theirs.label], theirs) for theirs in other.axes]
        if any(axis.scale != theirs.scale for axis, theirs in pairs):
            return None
        return Space(tuple(axis if axis.ordered else _aligned(axis, theirs) for axis, theirs in pairs))

    def settings(self, index: int) -> tuple[Setting, ...]:
        """Return the spec of this row. Raises IndexError outside of the space."""
        if not 0 <= index < self.size:
            raise IndexError(f"spec {index} of a space of {self.size}")
        reversed_settings: list[Setting] = []
        for axis in reversed(self.axes):
            index, rank = divmod(index, len(axis.values))
            reversed_settings.append(Setting(category=axis.category, name=axis.name, value=axis.values[rank]))
        return tuple(reversed(reversed_settings))

    def index(self, settings: Sequence[Setting]) -> int:
        """Return the row of a spec; the order of settings does not matter, and `1` equals `1000m`.

        Raises:
            SpaceInvalid: the settings have other parameters, or a value that its axis lacks.
        """
        given = {(setting.category, setting.name): setting.value for setting in settings}
        expected = {(axis.category, axis.name) for axis in self.axes}
        if given.keys() != expected or len(given) != len(settings):
            shown = ", ".join(f"{s.category}/{s.name}" for s in settings) or "none"
            raise SpaceInvalid(
                "settings", f"must be of {', '.join(axis.label for axis in self.axes)}, and are of {shown}"
            )
        index = 0
        for axis in self.axes:
            index = index * len(axis.values) + _rank(axis, given[axis.category, axis.name])
        return index

    def ranks(self) -> NDArray[np.int64]:
        """Return the rank of each spec (rows) on each axis (columns)."""
        counts = np.array([len(axis.values) for axis in self.axes], dtype=np.int64)
        # An axis's stride is the product of the counts of the axes after it.
        strides = np.concatenate([np.cumprod(counts[:0:-1])[::-1], [1]]).astype(np.int64)
        return np.arange(self.size, dtype=np.int64)[:, None] // strides % counts

    def coordinates(self) -> NDArray[np.float64]:
        """Return the position of each spec (rows) on each axis (columns), on its natural scale."""
        ranks = self.ranks()
        columns = [np.array(axis.positions)[ranks[:, i]] for i, axis in enumerate(self.axes)]
        return np.stack(columns, axis=1)


def flag(name: str) -> str:
    """Return an argument's name as a flag: `threads` is `--threads`, and `-j` stays."""
    return name if name.startswith("-") else f"--{name}"


def _aligned(mine: SpaceAxis, theirs: SpaceAxis) -> SpaceAxis:
    known = dict(zip(theirs.values, theirs.positions, strict=True))
    new = (value for value in mine.values if value not in known)
    known |= {value: float(len(theirs.values) + i) for i, value in enumerate(new)}
    return replace(mine, positions=tuple(known[value] for value in mine.values))


def _rank(axis: SpaceAxis, text: str) -> int:
    read = _reader(axis.category, axis.name) if axis.ordered else str
    try:
        return [read(value) for value in axis.values].index(read(text))
    except ValueError as error:
        raise SpaceInvalid(axis.label, f"{text} is none of {', '.join(axis.values)}") from error


def _reader(category: str, name: str) -> values.Reader:
    return values.span if (category, name) == ("batching", "timeout") else values.number


def _axis(path: str, category: Category, parameter: Parameter) -> SpaceAxis:
    limits = _limits(path, category, parameter)
    field = f"{path}.feasibleSpace"
    space = parameter.feasible_space
    if space.values and any(end is not None for end in (space.min, space.max, space.step, space.factor)):
        raise SpaceInvalid(field, "give either list, or min and max with one of step and factor")
    if parameter.parameter_type == "categorical":
        return _categories(path, category, parameter)
    grain = limits.grain if limits else _WHOLE if parameter.parameter_type == "int" else None
    if space.values:
        points = values.listed(field, space.values, _reader(category, parameter.name))
    elif _reader(category, parameter.name) is values.span:
        raise SpaceInvalid(field, "durations have no range: give them as a list")
    else:
        points = values.ranged(field, space, grain)
    for value in points:
        _check(field, parameter, limits, value)
    scale = _scale(path, parameter, [value.amount for value in points])
    positions = tuple(float(v.amount) if scale == "linear" else math.log2(v.amount) for v in points)
    for (before, here), (after, there) in itertools.pairwise(zip(points, positions, strict=True)):
        if here == there:  # a sum of min and steps, and a logarithm, can need more digits than a float has
            is_same = before.amount == after.amount
            rule = "are the same value" if is_same else f"are equal as floats on the {scale} scale"
            raise SpaceInvalid(field, f"{before.text} and {after.text} {rule}")
    plain = limits is not None and limits.digits_only
    texts = tuple(str(int(value.amount)) if plain else value.text for value in points)
    return SpaceAxis(category, parameter.name, texts, positions, scale)


def _limits(path: str, category: Category, parameter: Parameter) -> ValueRange | None:
    """Return the allowed values of a parameter, after a check of its name; None if they have no limits."""
    name, field = parameter.name, f"{path}.name"
    tables = {"resource": RESOURCES, "batching": BATCHING}
    if category in tables:
        table = tables[category]
        if name not in table:
            known = ", ".join(table)
            raise SpaceInvalid(field, f"{name} is not a parameter of {category}; it has {known}")
        if parameter.parameter_type == "categorical":
            raise SpaceInvalid(f"{path}.parameterType", f"{name} is ordered, and not categorical")
        return table[name]
    if category == "env" and _ENV.fullmatch(name) is None:
        raise SpaceInvalid(field, f"{name!r} is not the name of an environment variable")
    if category == "env" and name in _FIXED_ENV:
        raise SpaceInvalid(field, f"{name} is set by Slipway and cannot be tuned")
    if category == "args" and _ARGUMENT.fullmatch(name) is None:
        raise SpaceInvalid(field, f"{name!r} is not the name of an argument such as --threads")
    return None


def _categories(path: str, category: Category, parameter: Parameter) -> SpaceAxis:
    listed = parameter.feasible_space.values
    if not listed:
        raise SpaceInvalid(f"{path}.feasibleSpace.list", "categorical values are given as a list")
    if parameter.scale:
        raise SpaceInvalid(f"{path}.scale", f"categorical values have no scale, and it is {parameter.scale}")
    for text in listed:
        if listed.count(text) > 1:
            raise SpaceInvalid(f"{path}.feasibleSpace.list", f"{text!r} is listed twice")
    ranks = tuple(float(rank) for rank in range(len(listed)))
    return SpaceAxis(category, parameter.name, tuple(listed), ranks, "none")


def _check(field: str, parameter: Parameter, limits: ValueRange | None, value: Value) -> None:
    if limits:
        most = limits.most if limits.most is not None else value.amount
        if not limits.least <= value.amount <= most or value.amount % limits.grain:
            raise SpaceInvalid(field, f"{parameter.name} must be {limits.rule}, and {value.text} is not")
    elif parameter.parameter_type == "int" and value.amount % _WHOLE:
        raise SpaceInvalid(field, f"values of type int must be whole, and {value.text} is not")


def _scale(path: str, parameter: Parameter, amounts: Sequence[Decimal]) -> Scale:
    positive = all(amount > 0 for amount in amounts)
    if parameter.scale == "log" and not positive:
        raise SpaceInvalid(f"{path}.scale", f"log needs values greater than 0, and there is {min(amounts):f}")
    return "linear" if parameter.scale == "linear" or not positive else "log"
