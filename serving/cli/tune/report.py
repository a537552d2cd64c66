"""`slipway tune report`: what an experiment found, in sentences, as one HTML page or as JSON."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
from rich.console import Console
from threadpoolctl import threadpool_limits

from serving import clock
from serving.cli.output import files
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.cli.tune import status
from tuner.report import content, page
from tuner.report.text import sentences
from tuner.settings import TunerSettings

_INDENT = "  "
_WIDEST = 110
"""Characters in a line on a terminal: longer ones are hard to read."""
_TITLES: Mapping[str, str] = {
    "cautions": "Before you trust it",
    "current": "Against today's spec",
    "runnerUp": "Against the runner-up",
    "impossible": "Why nothing is recommended",
    "details": "What was measured",
    "prices": "If prices change",
    "bounds": "If the SLO changes",
    "fronts": "Cost against the rest",
    "shares": "What matters",
    "spent": "What it took",
}
"""Sections of the summary on a terminal, in their order; the page has the others too."""


def report(name: str, meant: Target, output: str | None, out: Path | None, settings: TunerSettings) -> None:
    """Print the report, or write it to a file.

    Raises:
        errors.UserError: the file's name says no form, or it cannot be written.
    """
    form = output or (files.form(out) if out else "text")
    experiment, trials = with_kube(meant.kubeconfig, lambda kube: status.read(kube, meant.namespace, name))
    # The matrices are small: on a busy machine more threads wait for each other, for many times as long.
    with threadpool_limits(1):
        found = content.of(experiment, trials, clock.now(), settings)
    if form == "html":
        files.write(out or Path(f"{name}.html"), page.render(found))
    elif form == "json":
        files.put(out, orjson.dumps(found, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif out:
        files.write(out, plain(sentences.of(found)))
    else:
        console = Console()
        width = min(console.width, _WIDEST) if console.is_terminal else None
        print(plain(sentences.of(found), width), end="")


def plain(told: Mapping[str, Sequence[str]], width: int | None = None) -> str:
    """Return the sentences as text: the headline, then a section for each that has any.

    Args:
        told: by section.
        width: characters in a line; with None each sentence has a line of its own.
    """
    parts = ["\n".join(_line(sentence, "", width) for sentence in told["headline"])]
    for section, title in _TITLES.items():
        if told[section]:
            lines = [_line(sentence, _INDENT, width) for sentence in told[section]]
            parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts).replace("\u00a0", " ") + "\n"


def _line(sentence: str, indent: str, width: int | None) -> str:
    if width is None:
        return indent + sentence
    return textwrap.fill(sentence, width, initial_indent=indent, subsequent_indent=2 * indent)
