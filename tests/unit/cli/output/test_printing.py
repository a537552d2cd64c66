"""Objects as text."""

import pytest
import yaml

from serving.cli.output import printing
from serving.cli.output.formats import OutputFormat
from serving.resources.formats import manifest_yaml


def test_strings_of_printed_yaml_are_strings_to_kubernetes(capsys: pytest.CaptureFixture[str]) -> None:
    printed = {"metadata": {"name": "words"}, "data": {"plain": "text", "y": "n", "number": "1e3"}}
    printing.print_objects([printed], OutputFormat("yaml"), single=True)
    assert yaml.load(capsys.readouterr().out, manifest_yaml.Loader) == printed
