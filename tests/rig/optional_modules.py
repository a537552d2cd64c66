"""Large packages that a machine may lack: their tests are skipped by name, and only their tests import them.

Every worker imports the modules of all tests. PyTorch, Transformers and OpenAI's client take 5 s of CPU time
and 400 MB, which makes each fork of the worker slower.
"""

import importlib
import importlib.util
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

LARGE = ("torch", "transformers", "tokenizers", "openai")


def check_none_is_imported() -> None:
    """Raise `pytest.UsageError` if a test file that was collected has imported a large package."""
    if imported := [name for name in LARGE if name in sys.modules]:
        raise pytest.UsageError(f"a test file imports {', '.join(imported)} before a test uses it")


class _Module:
    """A module that is imported when one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name == "_mock_name" or name.startswith("__"):  # pytest asks each global of a test file for these
            raise AttributeError(name)
        if self._name not in sys.modules:
            with _time_limit_suspended():
                importlib.import_module(self._name)
        return getattr(sys.modules[self._name], name)


@contextmanager
def _time_limit_suspended() -> Iterator[None]:
    """Stop the timer of pytest-timeout: its signal would leave a package half imported for later tests."""
    seconds, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def lazy(name: str) -> Any:
    """Return a module, one of ours that imports a large package, that is imported at its first use."""
    return _Module(name)


def optional_module(name: str, *, package: str, install: str) -> Any:
    """Return a module that is imported at its first use; skip the test file if it is not installed."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{package} is not installed (pip install {install})", allow_module_level=True)
    return lazy(name)


def torch() -> Any:
    """Return PyTorch."""
    return optional_module("torch", package="PyTorch", install="'slipway[llm]'")


def transformers() -> Any:
    """Return Transformers."""
    return optional_module("transformers", package="Transformers", install="'slipway[llm]'")


def tokenizers() -> Any:
    """Return the tokenizers, which come with Transformers."""
    return optional_module("tokenizers", package="Transformers", install="'slipway[llm]'")


def openai() -> Any:
    """Return OpenAI's client."""
    return optional_module("openai", package="OpenAI's client", install="openai")
