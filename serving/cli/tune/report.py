"""`slipway tune report`: the result of an experiment, in sentences, as one HTML page or as JSON."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
import typer

from serving import clock
from serving.cli.options import with_target
from serving.cli.output import files, tables
from serving.cli.session import with_kube
from serving.cli.target import Target
from serving.cli.tune import status
from serving.cli.tune.status import ExperimentName
from serving.data_dir import DataDir

if TYPE_CHECKING:
    from tuner.settings import TunerSettings

_INDENT = "  "
_MAX_WIDTH = 110
"""Most characters in a line on a terminal: longer lines are hard to read."""
_TITLES: Mapping[str, str] = {
    "cautions": "Cautions",
    "current": "Against today's spec",
    "alternative": "Against another spec of this price",
    "runnerUp": "Against the runner-up",
    "impossible": "Why nothing is recommended",
    "details": "Measurements",
    "prices": "If prices change",
    "bounds": "If the SLO changes",
    "fronts": "Pareto fronts",
    "shares": "Effect of the parameters",
    "spent": "Cost of the search",
}
"""Titles of the sections of the text, in order; the page has more sections."""


@with_target
def report(
    target: Target,
    name: ExperimentName,
    output: Annotated[
        Literal["text", "html", "json"] | None,
        typer.Option("-o", "--output", help="Output format.  [default: by the name of --out, or text]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write it to this file.  [default: NAME.html for html, or standard output]",
        ),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The configuration file of the tuner.  [default: the configuration of `up`, "
            "else DIR/config.yaml, where it exists]",
        ),
    ] = None,
) -> None:
    """Explain the result.

    In sentences, as one HTML page, or as JSON.
    """
    from rich.console import Console
    from threadpoolctl import threadpool_limits

    from tuner.report import content, page
    from tuner.report.text import sentences

    settings = tuner_settings(target, config_file)
    output_format = output or (files.form(out) if out else "text")
    experiment, trials = with_kube(target.kubeconfig, lambda kube: status.read(kube, target.namespace, name))
    # The matrices are small: on a busy machine several threads are many times slower than one.
    with threadpool_limits(1):
        result = content.of(experiment, trials, clock.now(), settings)
    if output_format == "html":
        files.write(out or Path(f"{name}.html"), page.render(result))
    elif output_format == "json":
        files.put(out, orjson.dumps(result, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif out:
        files.write(out, plain(sentences.of(result)))
    else:
        console = Console()
        width = min(console.width, _MAX_WIDTH) if console.is_terminal else None
        print(plain(sentences.of(result), width), end="")


def tuner_settings(target: Target, file: Path | None) -> "TunerSettings":
    """Return the settings by which trials are judged: those of `file`, else of the `up` that measured them.

    Raises:
        errors.UserError: the configuration file cannot be read, or breaks a rule.
    """
    from serving.cli.config import configuration, snapshot

    # The kubeconfig of an `up` is in its data directory. A cluster's is not, and the `up` of this machine has
    # measured none of the cluster's trials.
    of_api = DataDir(target.kubeconfig.resolve().parent)
    if of_api.is_of_up:
        return snapshot.in_effect(of_api, file).tuner
    return configuration.load(DataDir.named(target.data_dir), file).configuration.tuner


def plain(sections: Mapping[str, Sequence[str]], width: int | None = None) -> str:
    """Return sentences as text: the headline, then every section that has sentences.

    Args:
        sections: sentences by section.
        width: characters in a line; with None each sentence has a line of its own.
    """
    parts = ["\n".join(_line(sentence, "", width) for sentence in sections["headline"])]
    for section, title in _TITLES.items():
        if sections[section]:
            lines = [_line(sentence, _INDENT, width) for sentence in sections[section]]
            parts.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join(parts).replace("\u00a0", " ") + "\n"


def _line(sentence: str, indent: str, width: int | None) -> str:
    sentence = tables.printable(sentence)  # a replica's error may have escape sequences
    if width is None:
        return indent + sentence
    return textwrap.fill(sentence, width, initial_indent=indent, subsequent_indent=2 * indent)
