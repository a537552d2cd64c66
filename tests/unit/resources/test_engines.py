"""Engines as data: the shipped manifests, users' own, and the errors of invalid ones."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from serving import engines, errors
from serving.resources import engine
from serving.resources.engine import Engine
from serving.resources.inference import SHIPPED_ENGINES

MINIMAL: dict[str, Any] = {
    "name": "own-mine",
    "image": "registry.example/mine:1",
    "readiness": "/r",
    "liveness": "/l",
}


def written(folder: Path, **fields: Any) -> Path:
    manifest = {**MINIMAL, **fields}
    (folder / f"{manifest['name']}.yaml").write_text(yaml.safe_dump(manifest))
    return folder


def test_every_shipped_engine_is_measured_probed_and_tuned() -> None:
    assert tuple(sorted(engines.shipped())) == SHIPPED_ENGINES
    for shipped in engines.shipped().values():
        assert shipped.metrics.waiting
        assert shipped.metrics.generated_tokens
        assert shipped.tunables
        assert shipped.image.rpartition(":")[2] != "latest"


def test_engine_of_the_user_is_known_beside_the_shipped_ones(tmp_path: Path) -> None:
    known = engines.known(written(tmp_path))
    assert known["own-mine"].image == "registry.example/mine:1"
    assert "vllm" in known


def test_manifest_of_the_user_replaces_the_shipped_one(tmp_path: Path) -> None:
    assert engines.known(written(tmp_path, name="vllm"))["vllm"].image == "registry.example/mine:1"


def test_missing_folder_has_no_engines(tmp_path: Path) -> None:
    assert engines.known(tmp_path / "none") == engines.shipped()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": ""}, "image: String should have at least 1 character, got ''"),
        ({"port": 0}, "port: Input should be greater than or equal to 1, got 0"),
        ({"readiness": "ready"}, "readiness: String should match pattern"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted, got 'red'"),
        ({"fields": {"batching.size": "--x"}}, "batching.size is no field that may become an argument"),
        ({"fields": {"batching.batchSize": "x y"}}, "'x y' is no option such as --max-num-seqs"),
        ({"tunables": ["x"]}, "'x' is no option"),
        ({"metrics": {"waiting": ["a{b}"]}}, "'a{b}' is no metric name"),
        ({"name": "mine"}, "name: String should match pattern"),
        ({"name": "custom"}, "custom is a framework of Slipway's own"),
        ({"tokenUsage": "some"}, "tokenUsage: Input should be 'none', 'final' or 'continuous'"),
    ],
)
def test_invalid_manifest_is_refused_with_file_field_and_value(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    folder = written(tmp_path, **fields)
    with pytest.raises(errors.UserError) as refused:
        engines.known(folder)
    assert message in str(refused.value)
    assert ".yaml: " in str(refused.value)


@pytest.mark.parametrize("text", ["- a\n", "a: [", "\x00", "3"])
def test_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "own-mine.yaml").write_text(text)
    with pytest.raises(errors.UserError, match=r"own-mine\.yaml: "):
        engines.known(tmp_path)


def test_file_has_the_name_of_its_engine(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(MINIMAL))
    with pytest.raises(errors.UserError, match="name: must be that of the file, got own-mine"):
        engines.known(tmp_path)


def test_unknown_framework_is_answered_with_the_known_ones() -> None:
    known = {"own-mine": Engine.model_validate(MINIMAL)}
    assert engine.unknown("own-mine", known) == engine.unknown("sklearn", known) == ""
    message = "spec.framework: must be one of custom, own-mine, pytorch, sklearn, transformers, got own-vlm"
    assert engine.unknown("own-vlm", known) == message
