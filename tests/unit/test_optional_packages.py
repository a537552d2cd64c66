"""Packages that `make llm` installs, and `make venv` does not."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
(LISTED,) = re.findall(r"^LANGUAGE_MODELS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
PACKAGES = ("torch", *re.findall(r"'([a-z]+)==", LISTED))


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_checked_without_an_optional_package(package: str) -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    skipped = {
        module
        for override in overrides
        if override.get("ignore_missing_imports")
        for module in override["module"]
    }
    assert f"{package}.*" in skipped
