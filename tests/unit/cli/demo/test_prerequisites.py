"""The demo refuses to begin what it could not finish."""

import pytest

from serving import errors
from serving.cli.demo import command
from serving.router.envoy import token_module


def test_llm_is_refused_without_the_module_that_counts_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LLM_MODULES", ())
    monkeypatch.setattr(token_module, "library", lambda: None)
    with pytest.raises(errors.UserError, match="without a C compiler"):
        command.demo(llm=True)


def test_llm_is_refused_without_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LLM_MODULES", ("json", "no_such_package"))
    with pytest.raises(errors.UserError, match="--llm needs no_such_package: pip install"):
        command.demo(llm=True)
