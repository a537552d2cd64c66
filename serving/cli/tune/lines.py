"""What `slipway tune status -w` prints where there is no terminal: a line for each thing that became so. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from serving.cli.tune import summary
from serving.objects import Object
from serving.resources import ages

_WIDTH = 7
"""Of the column with the time since the experiment began, `59m30s` and two spaces behind it aside."""


_PURPOSES: Mapping[str, str] = {"Explore": "", "Confirm": ", once more", "Baseline": ", which runs today"}


class Line(NamedTuple):
    """One thing that is so."""

    about: str
    """What it is of: of two lines about the same, the later one counts."""
    text: str
    moment: str = ""
    """RFC 3339; empty for now."""
    once: str = ""
    """Said behind the text the first time."""


def new(told: Mapping[str, str], experiment: Object, trials: Sequence[Object]) -> list[Line]:
    """Return what is so and was not told (by what it is about) before."""
    found = [line for line in _lines(experiment, trials) if told.get(line.about) != line.text]
    return [line._replace(once="") if line.about in told else line for line in found]


def text(line: Line, experiment: Object, now: datetime) -> str:
    """Return a line with the time since the experiment began."""
    started = (experiment.get("status") or {}).get("startTime")
    moment = line.moment or now.isoformat()
    since = ages.human((_time(moment) - _time(started)).total_seconds()) if started else "0s"
    return f"{since:<{_WIDTH}}{line.text}{line.once}"


def _lines(experiment: Object, trials: Sequence[Object]) -> Iterator[Line]:
    phase = summary.phase(experiment)
    ended = summary.has_ended(experiment)
    if not ended:
        yield Line("phase", phase)
    for trial in sorted(trials, key=summary.number):
        yield _of_trial(trial)
    said = experiment.get("status") or {}
    if (best := said.get("best")) and not ended:
        spec = experiment["spec"]
        value = summary.worth(spec, best)
        words = f", {summary.measured(spec).label} {value}" if value else ""
        yield Line("best", f"best so far: {best.get('trial')}{words}")
    if ended:
        yield Line("phase", f"{phase}: {summary.words(experiment)}", said.get("completionTime", ""))


def _of_trial(trial: Object) -> Line:
    name, said = trial["metadata"]["name"], trial.get("status") or {}
    if not summary.is_over(trial):
        purpose = _PURPOSES[trial["spec"].get("purpose", "Explore")]
        spec = summary.settings_words(trial["spec"].get("settings") or [])
        return Line(name, f"{name} {summary.stage(trial)}", once=f": {spec}{purpose}")
    window = said.get("result") or {}
    numbers = [f"{summary.throughput(window)} req/s" if window else "", _p99(window)]
    words = ", ".join(part for part in (said.get("reason"), *numbers) if part)
    message = f": {said['message']}" if said.get("message") and not window else ""
    return Line(name, f"{name} {words}{message}", said.get("completionTime", ""))


def _p99(window: Object) -> str:
    tail = summary.tail(window)
    return f"p99 {tail}" if tail else ""


def _time(moment: str) -> datetime:
    return datetime.fromisoformat(moment)
