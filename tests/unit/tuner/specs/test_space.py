"""A space has exactly the values that the user wrote, in order, and each spec has one row."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from serving.errors import SpaceInvalid
from serving.resources.formats import quantity
from serving.resources.tuning.experiment import ProfilingExperimentSpec, Setting
from tuner.specs.space import Space, SpaceAxis


def spec_of(*groups: tuple[str, list[dict[str, Any]]]) -> ProfilingExperimentSpec:
    return ProfilingExperimentSpec.model_validate(
        {
            "target": {"inference": "digits"},
            "tunableParameters": [
                {"category": name, "parameters": parameters} for name, parameters in groups
            ],
        }
    )


def parameter(name: str, type_: str = "discrete", scale: str = "", **space: Any) -> dict[str, Any]:
    return {"name": name, "parameterType": type_, "scale": scale, "feasibleSpace": space}


def axis(category: str, name: str, type_: str = "discrete", scale: str = "", **space: Any) -> SpaceAxis:
    return Space.of(spec_of((category, [parameter(name, type_, scale, **space)]))).axes[0]


@pytest.mark.parametrize(
    ("name", "space", "values"),
    [
        ("cpu", {"min": "500m", "max": "2", "step": "500m"}, ("500m", "1", "1500m", "2")),
        ("cpu", {"min": "0.5", "max": "2", "step": "0.5"}, ("0.5", "1", "1.5", "2")),
        ("cpu", {"min": 1, "max": 8, "factor": 2}, ("1", "2", "4", "8")),
        ("cpu", {"min": "250m", "max": "2", "factor": 2}, ("250m", "500m", "1", "2")),
        ("cpu", {"min": "1", "max": "4", "factor": "1.5"}, ("1", "1.5", "2.25", "3.375")),
        ("cpu", {"min": "100m", "max": "161051u", "factor": "1.1"}, None),
        ("memory", {"min": "512Mi", "max": "2Gi", "step": "512Mi"}, ("512Mi", "1Gi", "1536Mi", "2Gi")),
        ("memory", {"min": "1.5Gi", "max": "2.5Gi", "step": "512Mi"}, ("1.5Gi", "2Gi", "2.5Gi")),
        ("memory", {"min": "500M", "max": "1500M", "step": "500M"}, ("500M", "1G", "1500M")),
        ("memory", {"list": ["2Gi", "512Mi", "1024Mi"]}, ("512Mi", "1024Mi", "2Gi")),
        ("gpu.memory", {"min": "1Gi", "max": "8Gi", "factor": 2}, ("1Gi", "2Gi", "4Gi", "8Gi")),
        ("gpu.cores", {"min": 10, "max": 100, "step": 30}, ("10", "40", "70", "100")),
        ("gpu.cores", {"min": 1, "max": 3, "factor": "1.3"}, ("1", "2", "3")),
    ],
)
def test_values_are_written_in_the_users_notation(
    name: str, space: dict[str, Any], values: tuple[str, ...] | None
) -> None:
    if values is None:
        with pytest.raises(SpaceInvalid, match="cpu must be whole thousandths of a core above 0"):
            axis("resource", name, **space)
    else:
        assert axis("resource", name, **space).values == values


@pytest.mark.parametrize(("category", "name"), [("batching", "batchSize"), ("resource", "gpu.cores")])
def test_values_of_whole_number_parameters_are_written_in_digits(category: str, name: str) -> None:
    result = Space.of(spec_of((category, [parameter(name, list=["1", "2e1", "0.1k"])])))
    assert result.axes[0].values == ("1", "20", "100")
    before = [Setting.model_validate({"category": category, "name": name, "value": "2e1"})]
    assert result.index(before) == 1


def test_range_of_tenths_ends_exactly_at_its_max() -> None:
    result = axis("env", "RATE", "double", min="0.1", max="0.7", step="0.1")
    assert result.values == ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7")


@given(
    st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 400), st.sampled_from(["", "m", "Mi", "k"])
)
def test_a_range_ends_at_its_max_when_a_step_meets_it(low: int, step: int, count: int, suffix: str) -> None:
    result = axis(
        "env",
        "X",
        "double",
        min=f"{low}{suffix}",
        max=f"{low + step * count}{suffix}",
        step=f"{step}{suffix}",
    )
    assert result.values[-1] == f"{low + step * count}{suffix}" or count == 0
    unit = quantity.parse(f"1{suffix}")
    assert [quantity.parse(text) for text in result.values] == [
        (low + step * i) * unit for i in range(count + 1)
    ]


@given(st.decimals("0.001", 1000, places=3), st.decimals("1.1", 10, places=1), st.integers(0, 9))
def test_powers_end_at_their_max_when_a_power_meets_it(low: Decimal, factor: Decimal, count: int) -> None:
    high = low * factor**count
    assume(len(high.normalize().as_tuple().digits) <= 15)
    result = axis("env", "X", "double", min=f"{low:f}", max=f"{high:f}", factor=f"{factor}")
    assert len(result.values) == count + 1
    assert quantity.parse(result.values[-1]) == high


def test_powers_begin_at_their_min_when_it_has_many_digits() -> None:
    result = axis("env", "X", "double", min="1.2345612", max="5", factor="2")
    assert result.values == ("1.2345612", "2.46912", "4.93824")


@given(st.decimals(0, 100, places=2), st.decimals(0, 100, places=2), st.decimals("0.05", 10, places=2))
def test_a_range_stays_between_its_ends(low: Decimal, width: Decimal, step: Decimal) -> None:
    result = axis("env", "X", "double", min=f"{low}", max=f"{low + width}", step=f"{step}")
    amounts = [quantity.parse(text) for text in result.values]
    assert amounts[0] == low
    assert low + width - step < amounts[-1] <= low + width


AXES = st.lists(
    st.tuples(
        st.sampled_from(["cpu", "memory", "gpu.cores", "gpu.memory"]),
        st.lists(st.integers(1, 100), min_size=1, max_size=7, unique=True),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda axis_parameters: axis_parameters[0],
)


def space_of(axes: list[tuple[str, list[int]]]) -> Space:
    unit = {"memory": "Mi", "gpu.memory": "Gi"}
    return Space.of(
        spec_of(
            (
                "resource",
                [parameter(n, list=[f"{v}{unit.get(n, '')}" for v in values]) for n, values in axes],
            ),
            ("env", [parameter("MODE", "categorical", list=["b", "a"])]),
        )
    )


@given(AXES, st.data())
def test_every_spec_has_one_row(axes: list[tuple[str, list[int]]], data: st.DataObject) -> None:
    space = space_of(axes)
    index = data.draw(st.integers(0, space.size - 1))
    settings = space.settings(index)
    assert space.index(settings) == index
    assert space.index(data.draw(st.permutations(settings))) == index
    ranks, places = space.ranks(), space.coordinates()
    assert ranks.shape == places.shape == (space.size, len(space.axes))
    for column, (tuned_axis, setting) in enumerate(zip(space.axes, settings, strict=True)):
        rank = ranks[index, column]
        assert tuned_axis.values[rank] == setting.value
        assert places[index, column] == tuned_axis.positions[rank]


@given(AXES)
def test_specs_are_numbered_without_gap_or_repetition(axes: list[tuple[str, list[int]]]) -> None:
    space = space_of(axes)
    assert len(np.unique(space.ranks(), axis=0)) == space.size
    for tuned_axis in space.axes:
        assert list(tuned_axis.positions) == sorted(tuned_axis.positions)


def test_index_accepts_another_notation_of_the_values() -> None:
    space = space_of([("cpu", [1, 2]), ("memory", [1024])])
    written = [("resource", "memory", "1Gi"), ("env", "MODE", "a"), ("resource", "cpu", "2000m")]
    settings = [Setting.model_validate({"category": c, "name": n, "value": v}) for c, n, v in written]
    assert space.settings(space.index(settings))[0].value == "2"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([("resource", "cpu", "3"), ("env", "MODE", "a")], "resource/cpu: 3 is none of 1, 2"),
        ([("resource", "cpu", "x"), ("env", "MODE", "a")], "resource/cpu: x is none of 1, 2"),
        ([("resource", "cpu", "1"), ("env", "MODE", "c")], "env/MODE: c is none of b, a"),
        ([("resource", "cpu", "1")], "must be of resource/cpu, env/MODE, and are of resource/cpu"),
        ([], "and are of none"),
        ([("resource", "cpu", "1"), ("resource", "cpu", "1"), ("env", "MODE", "a")], "must be of"),
    ],
)
def test_index_refuses_a_spec_outside_of_the_space(settings: list[tuple[str, ...]], message: str) -> None:
    space = space_of([("cpu", [1, 2])])
    given_ = [Setting.model_validate({"category": c, "name": n, "value": v}) for c, n, v in settings]
    with pytest.raises(SpaceInvalid, match=message):
        space.index(given_)
    for index in (-1, space.size):
        with pytest.raises(IndexError):
            space.settings(index)


@pytest.mark.parametrize(
    ("category", "tuned", "positions"),
    [
        ("resource", parameter("cpu", list=["1", "2", "8"]), (0, 1, 3)),
        ("resource", parameter("cpu", scale="linear", list=["1", "2", "8"]), (1, 2, 8)),
        ("resource", parameter("memory", list=["1Gi", "512Mi"]), (29, 30)),
        ("env", parameter("OFFSET", list=["0", "-2", "4"]), (-2, 0, 4)),
        ("batching", parameter("timeout", list=["4ms", "0ms", "1100us"]), (0, 0.0011, 0.004)),
        ("batching", parameter("batchSize", "int", min=1, max=4, factor=2), (0, 1, 2)),
        ("args", parameter("--format", "categorical", list=["z", "a", ""]), (0, 1, 2)),
    ],
)
def test_an_axis_lies_on_its_natural_scale(
    category: str, tuned: dict[str, Any], positions: tuple[float, ...]
) -> None:
    result = Space.of(spec_of((category, [tuned]))).axes[0]
    assert result.positions == positions
    assert result.ordered == (tuned["parameterType"] != "categorical")


@pytest.mark.parametrize(
    ("category", "tuned", "field", "message"),
    [
        (
            "resource",
            parameter("gpucores", list=["1"]),
            ".name",
            "gpucores is not a parameter of resource; it has cpu, memory,",
        ),
        (
            "resource",
            parameter("cpu", list=["0", "1"]),
            ".feasibleSpace",
            "above 0, as in 500m or 2, and 0 is not",
        ),
        ("resource", parameter("cpu", list=["-1"]), ".feasibleSpace", "and -1 is not"),
        ("resource", parameter("cpu", list=["one"]), ".feasibleSpace.list[0]", "'one' is not a quantity"),
        ("resource", parameter("cpu", list=["1 "]), ".feasibleSpace.list[0]", "'1 ' has spaces around it"),
        (
            "resource",
            parameter("cpu", list=["1", "1000m"]),
            ".feasibleSpace",
            "1 and 1000m are the same value",
        ),
        ("resource", parameter("cpu", "categorical", list=["1"]), ".parameterType", "cpu is ordered"),
        (
            "resource",
            parameter("cpu", min="2", max="1", step="1"),
            ".feasibleSpace.max",
            "1 is less than min, 2",
        ),
        (
            "resource",
            parameter("cpu", min="1", max="2", step="0"),
            ".feasibleSpace.step",
            "must be greater than 0, and is 0",
        ),
        (
            "resource",
            parameter("cpu", min="1", max="2", factor="1"),
            ".feasibleSpace.factor",
            "greater than 1, and is 1",
        ),
        ("resource", parameter("cpu", min="1", max="2"), ".feasibleSpace", "with one of step and factor"),
        (
            "resource",
            parameter("cpu", min="1", max="2", step="1", factor="2"),
            ".feasibleSpace",
            "with one of",
        ),
        ("resource", parameter("cpu", list=["1"], min="1"), ".feasibleSpace", "give either list"),
        ("resource", parameter("cpu"), ".feasibleSpace", "give either list"),
        (
            "resource",
            parameter("memory", list=["512m"]),
            ".feasibleSpace",
            "whole bytes and at least 1Mi, as in 512Mi, and 512m",
        ),
        ("resource", parameter("memory", list=["512"]), ".feasibleSpace", "and 512 is not"),
        ("resource", parameter("gpu.cores", list=["101"]), ".feasibleSpace", "from 1 to 100, and 101 is not"),
        (
            "batching",
            parameter("size", list=["1"]),
            ".name",
            "size is not a parameter of batching; it has batchSize, timeout",
        ),
        (
            "batching",
            parameter("batchSize", list=["1.5"]),
            ".feasibleSpace",
            "from 1 to 1024, and 1.5 is not",
        ),
        (
            "batching",
            parameter("timeout", list=["11s"]),
            ".feasibleSpace",
            "at most 10s, as in 2ms, and 11s is not",
        ),
        ("batching", parameter("timeout", list=["2"]), ".feasibleSpace.list[0]", "'2' is not a duration"),
        ("batching", parameter("timeout", list=["1s", "1000ms"]), ".feasibleSpace", "are the same value"),
        (
            "batching",
            parameter("timeout", min="1m", max="2m", step="1m"),
            ".feasibleSpace",
            "durations have no range",
        ),
        (
            "env",
            parameter("X", "int", min="2.5", max="10", factor="2"),
            ".feasibleSpace",
            "type int must be whole, and 2.5 is not",
        ),
        (
            "resource",
            parameter("cpu", min="2500u", max="1", factor="2"),
            ".feasibleSpace",
            "cpu must be whole thousandths of a core above 0, as in 500m or 2, and 2500u is not",
        ),
        ("env", parameter("A B", list=["1"]), ".name", "'A B' is not the name of an environment variable"),
        ("env", parameter("SLIPWAY_MODEL_DIR", list=["1"]), ".name", "cannot be tuned"),
        (
            "env",
            parameter("X", "int", list=["1", "1.5"]),
            ".feasibleSpace",
            "type int must be whole, and 1.5 is not",
        ),
        (
            "env",
            parameter("X", "double", list=["fast"]),
            ".feasibleSpace.list[0]",
            "'fast' is not a quantity",
        ),
        (
            "env",
            parameter("X", "categorical", list=["a", "b", "a"]),
            ".feasibleSpace.list",
            "'a' is listed twice",
        ),
        (
            "env",
            parameter("X", "categorical", min="1", max="2", step="1"),
            ".feasibleSpace.list",
            "given as a list",
        ),
        ("env", parameter("X", "categorical", "log", list=["a"]), ".scale", "have no scale"),
        (
            "env",
            parameter("X", scale="log", list=["0", "1"]),
            ".scale",
            "log needs values greater than 0, and there is 0",
        ),
        (
            "env",
            parameter("X", min="0", max="2", factor="2"),
            ".feasibleSpace.factor",
            "needs a min greater than 0",
        ),
        (
            "env",
            parameter("X", min="0", max="1", step="1e-9"),
            ".feasibleSpace.step",
            "more than 100,000 values",
        ),
        (
            "env",
            parameter("X", min="1", max="2", factor="1.000000001"),
            ".feasibleSpace.factor",
            "more than 100,000 values",
        ),
        ("env", parameter("X", list=["1e30"]), ".feasibleSpace.list[0]", "1e30 is not between"),
        ("env", parameter("X", list=["6E1000000"]), ".feasibleSpace.list[0]", "is not between"),
        (
            "env",
            parameter("X", list=["0.1234567890123456"]),
            ".feasibleSpace.list[0]",
            "more than 15 significant digits",
        ),
        (
            "env",
            parameter("X", scale="linear", min="99999999999999", max="100000000000000", step="0.01"),
            ".feasibleSpace",
            "99999999999999.01 and 99999999999999.02 are equal as floats on the linear scale",
        ),
        (
            "env",
            parameter("X", scale="log", list=["999999999999998", "999999999999999"]),
            ".feasibleSpace",
            "999999999999998 and 999999999999999 are equal as floats on the log scale",
        ),
        ("args", parameter("--threads=", list=["1"]), ".name", "'--threads=' is not the name of an argument"),
    ],
)
def test_invalid_parameters_are_refused_with_field_rule_and_value(
    category: str, tuned: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(SpaceInvalid) as error:
        Space.of(spec_of((category, [tuned])))
    assert error.value.field == f"spec.tunableParameters[0].parameters[0]{field}"
    assert message in str(error.value)
    assert error.value.reason == "SpaceInvalid"


def test_parameter_that_is_listed_twice_is_refused() -> None:
    twice = [parameter("--threads", list=["1"]), parameter("threads", list=["2"])]
    with pytest.raises(SpaceInvalid, match=r"parameters\[1\]\.name: --threads is tuned twice in args"):
        Space.of(spec_of(("args", twice)))


def test_a_space_that_is_too_large_is_refused_with_its_size() -> None:
    axes = [parameter(name, "int", min="1", max="47", step="1") for name in ("A", "B", "C")]
    with pytest.raises(SpaceInvalid, match="47 x 47 x 47 are 103,823 specs; at most 100,000"):
        Space.of(spec_of(("env", axes)))


TEXTS = st.text(max_size=8) | st.from_regex(
    r"[-+]?[0-9.]{1,20}([eE][-+]?[0-9]{1,25}|[a-zA-Z]{0,2})", fullmatch=True
)
QUANTITIES = st.from_regex(
    r"[0-9]{1,20}(\.[0-9]{1,20})?([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,25})?", fullmatch=True
)


@given(
    st.sampled_from(["resource", "batching", "env", "args"]),
    st.sampled_from(["cpu", "memory", "gpu.cores", "batchSize", "timeout", "X", "--x"])
    | st.text(min_size=1, max_size=5),
    st.sampled_from(["double", "int", "discrete", "categorical"]),
    st.sampled_from(["log", "linear", ""]),
    st.fixed_dictionaries(
        {},
        optional={
            "list": st.lists(TEXTS, max_size=5),
            "min": QUANTITIES,
            "max": QUANTITIES,
            "step": QUANTITIES,
            "factor": st.from_regex(r"[0-9]{1,20}(\.[0-9]{1,20})?", fullmatch=True),
        },
    ),
)
def test_parameters_of_the_schema_make_a_space_or_are_refused(
    category: str, name: str, type_: str, scale: str, space: dict[str, Any]
) -> None:
    try:
        spec = spec_of((category, [parameter(name, type_, scale, **space)]))
    except ValidationError:
        return
    try:
        result = Space.of(spec)
    except SpaceInvalid:
        return
    assert result.index(result.settings(result.size - 1)) == result.size - 1
    assert np.isfinite(result.coordinates()).all()


def kinds(*values: str, scale: str = "") -> Space:
    load = parameter("LEVEL", "int", scale, list=["1", "2", "4"])
    return Space.of(spec_of(("env", [parameter("KIND", "categorical", list=list(values)), load])))


def test_aligned_categories_have_the_positions_of_the_other_space() -> None:
    aligned = kinds("b", "d", "a").aligned_with(kinds("a", "b", "c"))
    assert aligned is not None
    assert aligned.axes[0].values == ("b", "d", "a")
    assert aligned.axes[0].positions == (1.0, 3.0, 0.0)
    assert aligned.axes[1] == kinds("a").axes[1]


def test_aligned_axes_have_the_order_of_the_other_space() -> None:
    axes = [("cpu", [1, 2]), ("memory", [1024, 512, 256])]
    ours, theirs = space_of(axes), space_of([axes[1], ("cpu", [4, 2])])
    aligned = theirs.aligned_with(ours)
    assert aligned is not None
    assert [axis.label for axis in aligned.axes] == [axis.label for axis in ours.axes]
    assert [axis.values for axis in aligned.axes[:2]] == [("2", "4"), ("256Mi", "512Mi", "1024Mi")]
    row = aligned.index(theirs.settings(0))
    assert list(aligned.coordinates()[row]) == [1.0, 28.0, 0.0]


def test_spaces_without_common_values_are_aligned_only_on_one_scale() -> None:
    def scaled(scale: str, *values: str) -> Space:
        return Space.of(spec_of(("env", [parameter("X", scale=scale, list=list(values))])))

    assert scaled("log", "1", "2").aligned_with(scaled("linear", "3", "4")) is None
    assert scaled("", "1", "2").aligned_with(scaled("", "0", "4")) is None
    assert scaled("log", "1", "2").aligned_with(scaled("", "3", "4")) == scaled("log", "1", "2")


def test_spaces_of_other_parameters_or_scales_are_not_aligned() -> None:
    assert kinds("a", scale="linear").aligned_with(kinds("a")) is None
    assert (
        kinds("a").aligned_with(Space.of(spec_of(("env", [parameter("KIND", "categorical", list=["a"])]))))
        is None
    )
    ordered = Space.of(
        spec_of(
            ("env", [parameter("KIND", list=["1", "2"]), parameter("LEVEL", "int", list=["1", "2", "4"])])
        )
    )
    assert ordered.aligned_with(kinds("1", "2")) is None
