"""Large packages that a machine may lack: their tests are skipped by name, and only their tests import them.

Every worker imports the modules of all tests. PyTorch, Transformers and OpenAI's client take 5 s of CPU time
and 400 MB, which makes each fork of the worker slower.
"""

import importlib
import importlib.util
from typing import Any

import pytest


class _Module:
    """A module that is imported when one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


def optional_module(name: str, *, package: str, install: str) -> Any:
    """Return a module that is imported at its first use; skip the test file if it is not installed."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{package} is not installed (pip install {install})", allow_module_level=True)
    return _Module(name)


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
