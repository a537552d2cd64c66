"""The demo refuses to begin what it could not finish."""

import pytest

from serving import errors
from serving.cli.demo import command


def test_llm_is_refused_without_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LLM_MODULES", ("json", "no_such_package"))
    with pytest.raises(errors.UserError, match="--llm needs no_such_package: pip install"):
        command.demo(llm=True)
