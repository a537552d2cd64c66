"""Arguments of components that their packages may not import: controllers and the definitions of kinds."""

import importlib
from functools import partial
from typing import Any

import pytest

from serving.cli.config.schema import Configuration
from serving.cli.machine import component
from serving.cli.machine.components import DECLARATIONS
from serving.resources import catalog
from serving.settings import ModelsSettings, RuntimeImageSettings
from serving.system.network.kept_sockets import KeptSockets
from serving.system.readiness import Readiness
from tuner import controller as experiments


def test_experiments_get_the_images_and_volumes_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    declaration = DECLARATIONS["controllers"]
    module = importlib.import_module(declaration.module)
    monkeypatch.setattr(module, "run", lambda data_dir, settings, readiness, *others: given.extend(others))
    images = RuntimeImageSettings(prefix="registry.corp/slipway", tag="1.2.0")
    configuration = Configuration(runtime_images=images, models=ModelsSettings(volume="copy"))
    run: Any = component._load(declaration, configuration, KeptSockets(), Readiness(), None)
    run(None, configuration)
    (prepare,) = (
        other for other in given if isinstance(other, partial) and other.func is experiments.prepared
    )
    assert prepare.keywords["images"] == images
    assert prepare.keywords["volume"] == "copy"


def test_the_api_gets_the_definitions_of_slipways_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    declaration, configuration = DECLARATIONS["api"], Configuration()
    monkeypatch.setattr(
        importlib.import_module(declaration.module), "run", lambda *arguments: given.extend(arguments)
    )
    run: Any = component._load(declaration, configuration, KeptSockets(), Readiness(), None)
    run(None, configuration)
    assert given == [None, configuration, catalog.DEFINITIONS]
    assert catalog.__name__ in declaration.modules
