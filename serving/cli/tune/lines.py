"""The lines of `slipway tune status -w` without a terminal: one line per change. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from serving.cli.output import tables
from serving.cli.tune import summary
from serving.objects import Object
from serving.resources.formats import ages

_TIME_WIDTH = 7
"""Characters of the column with the time since the experiment began, such as `59m30s`."""
_PURPOSES: Mapping[str, str] = {"Explore": "", "Confirm": ", once more", "Baseline": ", which runs today"}


class StatusLine(NamedTuple):
    """The state of one subject: a trial, the phase or the best spec."""

    subject: str
    """A trial's name, `phase` or `best`; a later line replaces the state of the same subject."""
    text: str
    moment: str = ""
    """Time of the state, RFC 3339; empty for the current time."""
    details: str = ""
    """Printed after the text in the first line of a subject only."""


def new(printed: Mapping[str, str], experiment: Object, trials: Sequence[Object]) -> list[StatusLine]:
    """Return the lines whose text differs from the printed one of the same subject."""
    changed = [line for line in _lines(experiment, trials) if printed.get(line.subject) != line.text]
    return [line._replace(details="") if line.subject in printed else line for line in changed]


def text(line: StatusLine, experiment: Object, now: datetime) -> str:
    """Return a line with the time since the experiment began; control characters are escaped."""
    started = (experiment.get("status") or {}).get("startTime")
    moment = line.moment or now.isoformat()
    since = ages.human((_time(moment) - _time(started)).total_seconds()) if started else "0s"
    return tables.printable(f"{since:<{_TIME_WIDTH}}{line.text}{line.details}")


def _lines(experiment: Object, trials: Sequence[Object]) -> Iterator[StatusLine]:
    phase = summary.phase(experiment)
    ended = summary.has_ended(experiment)
    if not ended:
        yield StatusLine("phase", phase)
    for trial in sorted(trials, key=summary.trial_number):
        yield _of_trial(trial)
    status = experiment.get("status") or {}
    if (best := status.get("best")) and not ended:
        spec = experiment["spec"]
        value = summary.objective(spec, best)
        objective = f", {summary.objective_measure(spec).label} {value}" if value else ""
        yield StatusLine("best", f"best so far: {best.get('trial')}{objective}")
    if ended:
        yield StatusLine("phase", f"{phase}: {summary.reason(experiment)}", status.get("completionTime", ""))


def _of_trial(trial: Object) -> StatusLine:
    """Return the line of a trial; the result of an ended trial has the form of a window."""
    name, status = trial["metadata"]["name"], trial.get("status") or {}
    if not summary.is_over(trial):
        purpose = _PURPOSES[trial["spec"].get("purpose", "Explore")]
        spec = summary.settings_words(trial["spec"].get("settings") or [])
        return StatusLine(name, f"{name} {summary.trial_phase(trial)}", details=f": {spec}{purpose}")
    window = status.get("result") or {}
    numbers = [f"{summary.throughput(window)} req/s" if window else "", _p99(window)]
    result = ", ".join(part for part in (status.get("reason"), *numbers) if part)
    message = f": {status['message']}" if status.get("message") and not window else ""
    return StatusLine(name, f"{name} {result}{message}", status.get("completionTime", ""))


def _p99(window: Object) -> str:
    latency = summary.p99_latency(window)
    return f"p99 {latency}" if latency else ""


def _time(moment: str) -> datetime:
    return datetime.fromisoformat(moment)
