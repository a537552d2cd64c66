"""The marks of specs in plots, by their role in the answer or by their constraints; and lines at bounds."""

from markupsafe import Markup

from serving.report_pages import formatting, svg
from serving.report_pages.svg import AxisScale
from tuner import notation
from tuner.report.schema import Report

LEGEND = {
    "rec": "recommended",
    "cur": "runs today",
    "run": "runner-up",
    "ok": "meets the constraints",
    "unsure": "may meet them",
    "no": "breaks a constraint",
}
"""Meaning of each role. The key is the CSS class of the role's marks."""


def role(report: Report, spec: int | None, trial: str, meets: str) -> str:
    """Return the role (key of LEGEND) of a trial: its spec's place in the answer, else by the constraints.

    Args:
        report: has the answer.
        spec: index in the space; None outside the space.
        trial: name of the trial.
        meets: whether the trial met the constraints.
    """
    answer = report.answer
    for css, choice in (("rec", answer.choice), ("cur", answer.current), ("run", answer.runner_up)):
        if choice and (trial in choice.trials or (spec is not None and spec == choice.spec)):
            return css
    return {"Yes": "ok", "No": "no"}.get(meets, "unsure")


def glyph(css: str, x: float, y: float, tip: str) -> Markup:
    """Return the mark of a role at a position in the drawing, with a tooltip.

    Roles differ in shape as well as in colour. `css` is a key of LEGEND.
    """
    shapes = {
        "rec": f"M{x:.1f} {y - 8:.1f}l7 8l-7 8l-7 -8z",
        "cur": f"M{x - 5.5:.1f} {y - 5.5:.1f}h11v11h-11z",
        "run": f"M{x:.1f} {y - 7:.1f}l6.5 11.5h-13z",
        "no": f"M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7",
    }
    if css in shapes:
        return svg.element("path", {"class": f"mark {css}", "d": shapes[css], "data-tip": tip})
    return svg.dot(x, y, f"mark {css}", tip)


def legend(kinds: set[str]) -> tuple[tuple[str, str], ...]:
    """Return the legend of the roles in a plot."""
    return tuple((css, words) for css, words in LEGEND.items() if css in kinds)


def names(report: Report) -> dict[str, str]:
    """Return the notation of each trial's spec, by the trial's name."""
    return {row.name: notation.spec(row.settings) for row in report.trials}


def bound_line(y: AxisScale, bound: float) -> Markup:
    """Return a horizontal line at a bound in seconds; empty if the bound is outside the scale."""
    if not y.low <= bound <= y.high:
        return Markup("")
    at = y.at(bound)
    words = svg.text(svg.WIDTH - svg.RIGHT - 2, at - 4, f"at most {formatting.duration(bound)}", "note end")
    return (
        svg.element(
            "line", {"class": "bound", "x1": svg.LEFT, "x2": svg.WIDTH - svg.RIGHT, "y1": at, "y2": at}
        )
        + words
    )
