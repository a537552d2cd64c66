"""Plots of the model of the space: surfaces over two axes, curves along one, shares of the axes."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from serving.report_pages import formatting, svg
from serving.report_pages.plots import Plot, PlotTable, wide
from serving.report_pages.svg import AxisScale, Tick, labelled_ticks
from tuner.report.schema import Axis, Curve, Report, Surface
from tuner.report.surfaces import BAND
from tuner.report.text import measure

SHADES = 9
"""Colours of a surface; more would be indistinguishable."""
_UNLIKELY = 0.5
"""Cells that meet the constraints with less than this probability are hatched."""
_CROWDED = 9
"""Values of an axis above which only some have labels."""
_LONG = 8
"""Characters of a value that fit below a plot."""
_TENFOLD = math.log(10)
"""Greatest shown uncertainty, as a logarithm: a factor of ten."""
_KEY = 22
"""Height of the key above a surface."""
_BARS = 10
"""Most bars of `shares`; the table has every share."""

Cells = Sequence[Sequence[float | None]]
"""(len(y_ranks), len(x_ranks)) values of a surface; None for an undefined value."""


def surface(report: Report, data: Surface) -> Plot:
    """Return the expected objective over two axes, and its uncertainty."""
    shown = measure.of(report.question)
    x, y = report.question.axes[data.x], report.question.axes[data.y]
    mean = [[shown.shown(value) for value in row] for row in data.mean]
    uncertain = [[_to_either_side(value) for value in row] for row in data.deviation]
    pictures = (
        _heat(report, data, mean, f"Expected {shown.label}", shown.write, good_is_low=shown.less_is_better),
        _heat(report, data, uncertain, "Uncertainty to either side", formatting.percent, good_is_low=True),
    )
    rows = tuple(
        (
            y.values[y_rank],
            x.values[x_rank],
            _or_dash(mean[j][i], shown.write),
            formatting.percent(uncertain[j][i]),
            formatting.percent(data.meets[j][i]),
        )
        for j, y_rank in enumerate(data.y_ranks)
        for i, x_rank in enumerate(data.x_ranks)
    )
    columns = (
        y.name,
        x.name,
        f"expected {shown.label}",
        "uncertainty",
        "probability of meeting the constraints",
    )
    title = (
        f"{y.name} by {x.name}: expected {shown.label} and its uncertainty"
        " (stronger colours are better or more certain)"
    )
    legend = [("framed", "the shown spec")]
    if any(share < _UNLIKELY for row in data.meets for share in row):
        legend.append(("hatch", "unlikely to meet the constraints"))
    return Plot(title, pictures, PlotTable(columns, rows), tuple(legend))


def _to_either_side(deviation: float) -> float:
    """Return the relative half width of the 95 % interval, from the deviation of the logarithm."""
    return math.exp(min(BAND * deviation, _TENFOLD)) - 1


def _or_dash(value: float | None, write: Callable[[float], str]) -> str:
    return formatting.DASH if value is None else write(value)


def _heat(
    report: Report,
    data: Surface,
    cells: Cells,
    label: str,
    write: Callable[[float], str],
    *,
    good_is_low: bool,
) -> Markup:
    """Return a heat map of `cells`; cells that are unlikely to meet the constraints are hatched."""
    x, y = report.question.axes[data.x], report.question.axes[data.y]
    width = (svg.WIDTH - svg.LEFT - svg.RIGHT) / len(data.x_ranks)
    height = (svg.HEIGHT - svg.BOTTOM - svg.TOP - _KEY) / len(data.y_ranks)
    lefts = [svg.LEFT + i * width for i in range(len(data.x_ranks))]
    tops = [svg.HEIGHT - svg.BOTTOM - (j + 1) * height for j in range(len(data.y_ranks))]
    shades = _shades(cells, good_is_low=good_is_low)
    parts: list[Markup] = []
    for j, y_rank in enumerate(data.y_ranks):
        for i, x_rank in enumerate(data.x_ranks):
            tip = (
                f"{y.name} {y.values[y_rank]}, {x.name} {x.values[x_rank]}: {_or_dash(cells[j][i], write)};"
                f" meets the constraints with probability {formatting.percent(data.meets[j][i])}"
            )
            # Half a unit of overlap, so that no gap shows between cells.
            box = {"x": lefts[i], "y": tops[j], "width": width + 0.5, "height": height + 0.5}
            parts.append(svg.element("rect", {"class": f"cell h{shades[j][i]}", **box, "data-tip": tip}))
            if data.meets[j][i] < _UNLIKELY:
                parts.append(svg.element("rect", {"class": "hatched", **box}))
    if report.model:
        parts.append(_ring(report, data, lefts, tops, width=width, height=height))
    xs = _ticks(x, data.x_ranks, [left + width / 2 for left in lefts])
    ys = _ticks(y, data.y_ranks, [top + height / 2 for top in tops])
    frame = svg.frame(xs, ys, x.name, y.name, grid=False)
    title = f"{label}: {y.name} by {x.name}"
    return svg.picture(title, *parts, frame, _key(cells, label, write))


def _key(cells: Cells, label: str, write: Callable[[float], str]) -> Markup:
    """Return the text with the range of the values."""
    values = [value for row in cells for value in row if value is not None and math.isfinite(value)]
    words = f"{label}: {write(min(values))} to {write(max(values))}" if values else label
    return svg.text(svg.LEFT, svg.TOP + 6, words, "note")


def _shades(cells: Cells, *, good_is_low: bool) -> list[list[int]]:
    """Return a colour for each cell, 0 for the worst; the scale is logarithmic over a wide range."""
    values = [value for row in cells for value in row if value is not None and math.isfinite(value)]
    if not values:
        return [[0 for _ in row] for row in cells]
    scale: Callable[[float], float] = math.log if wide(values) else float
    low, high = scale(min(values)), scale(max(values))

    def shade(value: float | None) -> int:
        if value is None or not math.isfinite(value) or high <= low:
            return 0
        share = (scale(value) - low) / (high - low)
        return min(SHADES - 1, int((1 - share if good_is_low else share) * SHADES))

    return [[shade(value) for value in row] for row in cells]


def _ring(
    report: Report,
    data: Surface,
    lefts: Sequence[float],
    tops: Sequence[float],
    *,
    width: float,
    height: float,
) -> Markup:
    """Return the frame of the cell of the spec that the surface passes through."""
    assert report.model
    here = ranks_of(report.question.axes, report.model.around)
    if here[data.x] not in data.x_ranks or here[data.y] not in data.y_ranks:
        return Markup("")
    i, j = data.x_ranks.index(here[data.x]), data.y_ranks.index(here[data.y])
    return svg.element(
        "rect", {"class": "ring", "x": lefts[i], "y": tops[j], "width": width, "height": height}
    )


def ranks_of(axes: Sequence[Axis], index: int) -> list[int]:
    """Return the rank on each axis of the spec at `index`; the last axis changes fastest, as in the space."""
    ranks: list[int] = []
    for axis in reversed(axes):
        index, rank = divmod(index, len(axis.values))
        ranks.append(rank)
    return ranks[::-1]


def _ticks(axis: Axis, ranks: Sequence[int], places: Sequence[float]) -> list[Tick]:
    """Return ticks for at most _CROWDED of an axis's values; `places` has the position of each rank."""
    every = math.ceil(len(ranks) / _CROWDED)
    return [
        Tick(place, _short(axis.values[rank]))
        for n, (rank, place) in enumerate(zip(ranks, places, strict=True))
        if n % every == 0
    ]


def _short(value: str) -> str:
    return value if len(value) <= _LONG else f"{value[: _LONG - 1]}…"


def curve(report: Report, data: Curve) -> Plot:
    """Return the objective along one axis."""
    shown = measure.of(report.question)
    axis = report.question.axes[data.axis]
    series = {name: [shown.shown(v) or 0.0 for v in values] for name, values in _series(data).items()}
    x = AxisScale(*_ends(axis, data), svg.LEFT + 14, svg.WIDTH - svg.RIGHT - 14)
    values = [value for name in ("mean", "low", "high", "slice") for value in series[name]]
    y = AxisScale.around(values, svg.HEIGHT - svg.BOTTOM, svg.TOP, log=wide(values))
    places = [x.at(_place(axis, rank)) for rank in data.ranks]

    def points(name: str) -> list[tuple[float, float]]:
        return [(place, y.at(value)) for place, value in zip(places, series[name], strict=True)]

    parts = [
        svg.frame(_ticks(axis, data.ranks, places), labelled_ticks(y, shown.write), axis.name, shown.label)
    ]
    parts.append(svg.area([*points("low"), *reversed(points("high"))], "band"))
    parts += [svg.line(points("mean"), "course average"), svg.line(points("slice"), "course rec")]
    for n, (rank, place) in enumerate(zip(data.ranks, places, strict=True)):
        tip = (
            f"{axis.name} {axis.values[rank]}: {shown.write(series['slice'][n])}"
            f" with the other parameters of the shown spec; on average {shown.write(series['mean'][n])}"
        )
        parts.append(svg.dot(place, y.at(series["slice"][n]), "mark rec", tip, 3.5))
    title = f"{axis.name}: expected {shown.label}"
    rows = tuple(
        (
            axis.values[rank],
            shown.write(series["slice"][n]),
            shown.write(series["mean"][n]),
            " to ".join(shown.write(end) for end in sorted((series["low"][n], series["high"][n]))),
            formatting.percent(data.meets[n]),
        )
        for n, rank in enumerate(data.ranks)
    )
    columns = (
        axis.name,
        "other parameters of the shown spec",
        "average over all",
        "95 % band of the average",
        "probability of meeting the constraints",
    )
    legend = (
        ("rec", "with the other parameters of the shown spec"),
        ("average", "average over all specs, with its band"),
    )
    return Plot(title, (svg.picture(title, *parts),), PlotTable(columns, rows), legend)


def _series(data: Curve) -> dict[str, list[float]]:
    """Return the lines of the plot by the names of their fields: a value for each of `data.ranks`."""
    return {"mean": data.mean, "low": data.low, "high": data.high, "slice": data.slice}


def _place(axis: Axis, rank: int) -> float:
    """Return the place of a value on the scale of the axis; values without an order are equally spaced."""
    return axis.positions[rank] if axis.ordered else float(rank)


def _ends(axis: Axis, data: Curve) -> tuple[float, float]:
    places = [_place(axis, rank) for rank in data.ranks]
    return min(places), max(places)


def shares(report: Report) -> Plot | None:
    """Return the shares of axes and pairs of axes in the variance of the objective."""
    if report.model is None or not report.model.shares:
        return None
    axes = report.question.axes
    ordered = sorted(report.model.shares, key=lambda s: -s.share)
    rows = [(" with ".join(axes[i].name for i in share.axes), share.share) for share in ordered]
    drawn = rows[:_BARS]
    x = AxisScale(0.0, max(0.01, *(share for _, share in drawn)), 12, svg.WIDTH - svg.RIGHT)
    parts: list[Markup] = []
    for i, (name, share) in enumerate(drawn):
        top = 6 + i * 32
        parts.append(svg.text(12, top + 10, f"{name}: {formatting.percent(share)}", "tick"))
        box = {"x": 12, "y": top + 14, "width": x.at(share) - 12, "height": 10}
        parts.append(
            svg.element(
                "rect", {"class": "bar run", **box, "data-tip": f"{name}: {formatting.percent(share)}"}
            )
        )
    title = "What the objective depends on"
    picture = svg.picture(title, *parts, height=10 + 32 * len(drawn))
    return Plot(
        title,
        (picture,),
        PlotTable(("parameter", "share"), tuple((name, formatting.percent(share)) for name, share in rows)),
    )
