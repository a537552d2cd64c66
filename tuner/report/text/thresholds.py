"""Sentences of the sensitivity: the prices and bounds at which another spec wins."""

from collections.abc import Callable
from dataclasses import dataclass

from serving.report_pages import formatting
from serving.resources.tuning.trial import Estimate
from tuner import notation
from tuner.report.schema import PriceChange, Report, Segment
from tuner.report.text import answers, phrases

_NEAR = 1.25
"""Factor of today's price or bound within which another is near."""


def prices(report: Report) -> list[str]:
    """Return the sentences on each price: where another measured spec wins."""
    return [words for change in report.prices for words in _price(report, change)]


def _price(report: Report, change: PriceChange) -> list[str]:
    name, write = phrases.PRICES[change.price], formatting.number
    return _sentences(
        report,
        change.segments,
        _Words(
            write=write,
            today=change.today,
            below=f"If {name} cost less than {{}} per hour",
            above=f"If {name} cost {{}} per hour or more",
            never=f"No other measured spec wins at any price of {name}{_left_out(report)}.",
        ),
    )


def bounds(report: Report) -> list[str]:
    """Return the sentences on each constraint: the bounds at which another measured spec wins."""
    sentences: list[str] = []
    for change in report.bounds:
        bound = report.question.constraints[change.constraint]
        name = notation.metric(bound)
        words = _Words(
            write=notation.writer(bound),
            today=change.today,
            below=f"If the bound on the {name} were below {{}}",
            above=f"If the bound on the {name} were {{}} or more",
            never=f"No other measured spec wins at any bound on the {name}{_left_out(report)}.",
        )
        sentences += _sentences(report, change.segments, words)
    return sentences


def _left_out(report: Report) -> str:
    """Return a reservation, if specs measured better than the recommended one and are left out here."""
    is_any = any(caution.code == "MeasuredBetter" for caution in report.cautions)
    return ", those that measured better and are not recommended left out" if is_any else ""


@dataclass(frozen=True)
class _Words:
    """The parts of sentences about one price or bound; `{}` is a threshold."""

    write: Callable[[float], str]
    """Writes a price or bound with its unit."""
    today: float
    """Today's price or bound."""
    below: str
    """Begins the sentence about the winner below a threshold."""
    above: str
    """Begins the sentence about the winner from a threshold on."""
    never: str
    """The whole sentence if no other spec wins anywhere."""


def _sentences(report: Report, segments: list[Segment], words: _Words) -> list[str]:
    """Return a sentence on the next winner on each side of today's value, or `words.never` without any."""
    here = _index_of_today(segments, words.today)
    sentences: list[str] = []
    if here > 0:
        begin = words.below.format(words.write(segments[here].start))
        sentences.append(_sentence(report, begin, segments[here].start, segments[here - 1], words))
    if here < len(segments) - 1:
        after = segments[here + 1]
        sentences.append(
            _sentence(report, words.above.format(words.write(after.start)), after.start, after, words)
        )
    return sentences or [words.never]


def _sentence(report: Report, begin: str, threshold: float, segment: Segment, words: _Words) -> str:
    today = words.write(words.today)
    is_near = threshold > 0 and words.today > 0 and _factor(threshold, words.today) < _NEAR
    near = ", which is near" if is_near else ""
    return f"{begin} (today {today}{near}), {_wins(report, segment, words.write)}."


def _factor(a: float, b: float) -> float:
    return max(a / b, b / a)


def _index_of_today(segments: list[Segment], today: float) -> int:
    """Return the index of the segment with today's value; segments ascend without gaps."""
    return max((i for i, segment in enumerate(segments) if segment.start <= today), default=0)


def _wins(report: Report, segment: Segment, write: Callable[[float], str]) -> str:
    if not segment.trial:
        return "no measured spec would be allowed"
    name = notation.spec(segment.settings)
    if segment.factor is None:
        return f"{name} would win: the recommended spec would not be allowed"
    factor = Estimate(value=segment.factor, low=segment.factor, high=segment.factor)
    return f"{name} would win: at {write(segment.at)} {answers.gain(report, factor)}"
