"""The training program of the language model."""

import sys

import pytest

from serving import errors
from serving.resources import names
from tests.rig import optional_modules

optional_modules.torch()
optional_modules.transformers()
chat = optional_modules.lazy("serving.training.chat")


def test_output_directory_is_required_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    main = chat.main
    trainings = []

    def train(*options: int) -> tuple[None, None, dict[str, float]]:
        trainings.append(options)
        return None, None, {}

    monkeypatch.setattr("serving.training.chat.train", train)
    monkeypatch.delenv(names.OUTPUT_DIR_ENV, raising=False)
    monkeypatch.setattr(sys, "argv", ["chat"])
    with pytest.raises(errors.UserError, match=names.OUTPUT_DIR_ENV):
        main()
    assert not trainings
