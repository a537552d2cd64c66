"""All sentences of a report on an experiment, by section, from the report's JSON alone.

The HTML page and the terminal show the same sentences, each under its own titles.
"""

from collections.abc import Mapping
from typing import Any

from tuner.report.schema import Report
from tuner.report.text import answers, findings, thresholds


def of(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the sentences of each section of a report in JSON.

    Raises:
        pydantic.ValidationError: the JSON is not a report of this version; the error names the field.
    """
    return sections(Report.model_validate(report))


def sections(report: Report) -> dict[str, list[str]]:
    """Return the sentences of each section of a parsed report; a section may be empty.

    `headline` is one sentence; `question` describes the experiment's spec; `trials` has one sentence for each
    trial, in the order of the trials.
    """
    return {
        "headline": [answers.headline(report)],
        "cautions": findings.cautions(report),
        "details": answers.details(report),
        "current": answers.against_current(report),
        "alternative": answers.alternative(report),
        "runnerUp": answers.against_runner_up(report),
        "impossible": answers.impossible(report),
        "prices": thresholds.prices(report),
        "bounds": thresholds.bounds(report),
        "fronts": findings.fronts(report),
        "spent": findings.spent(report),
        "shares": findings.shares(report),
        "model": findings.model(report),
        "question": findings.question(report),
        "trials": findings.trials(report),
    }
