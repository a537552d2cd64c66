"""Recognition of the model directories of other tools."""

import json
from pathlib import Path
from typing import Any

import pytest

from serving import errors
from serving.cli.model import formats, importing
from serving.images.documents import output_manifest
from tests.objects.models.foreign_models import MLMODEL, RUN_ID, cache, hugging_face, run_directory


@pytest.mark.parametrize("below", ["", "artifacts/model"])
def test_an_mlflow_run_is_recognised_with_framework_metrics_and_inputs(tmp_path: Path, below: str) -> None:
    model = formats.recognise(run_directory(tmp_path) / below)
    assert (model.kind, model.framework, model.revision) == ("MLflow run", "sklearn", RUN_ID)
    assert model.metrics == {"accuracy": 0.97, "val/loss_mean": 0.25}
    assert model.inputs == ({"name": "input", "datatype": "FP64", "shape": [-1, 64]},)
    assert [name for _, name in formats.files(model)] == ["MLmodel", "conda.yaml", "model.pkl"]


def test_an_mlflow_run_becomes_a_valid_slipway_json(tmp_path: Path) -> None:
    model = formats.recognise(run_directory(tmp_path))
    parsed = output_manifest.parse(json.dumps(importing.manifest_fields(model, "sklearn")).encode())
    assert (parsed.framework, parsed.source_revision, parsed.metrics["accuracy"]) == ("sklearn", RUN_ID, 0.97)
    assert parsed.inputs[0].shape == (-1, 64)


def test_the_last_value_of_a_metric_is_read_when_its_file_is_long(tmp_path: Path) -> None:
    run = run_directory(tmp_path)
    lines = (f"1700000000000 {step / 100_000} {step}\n" for step in range(50_001))
    (run / "metrics" / "loss").write_text("".join(lines))
    assert formats.recognise(run).metrics["loss"] == 0.5


def test_a_metric_has_a_valid_name_when_its_own_is_too_long(tmp_path: Path) -> None:
    run = run_directory(tmp_path)
    (run / "metrics" / ("a" * 127 + "-b")).write_text("1 0.5 0")
    model = formats.recognise(run)
    parsed = output_manifest.parse(json.dumps(importing.manifest_fields(model, "sklearn")).encode())
    assert parsed.metrics["a" * 127] == 0.5


def test_a_pickle_is_renamed_to_the_name_that_the_runtime_loads(tmp_path: Path) -> None:
    text = MLMODEL.replace("pickled_model: model.pkl", "pickled_model: forest.pkl")
    model = formats.recognise(run_directory(tmp_path, text, "forest.pkl"))
    assert [name for _, name in formats.files(model)] == ["MLmodel", "conda.yaml", "model.pkl"]


def test_a_model_is_refused_when_another_file_has_the_name_of_its_renamed_pickle(tmp_path: Path) -> None:
    text = MLMODEL.replace("pickled_model: model.pkl", "pickled_model: forest.pkl")
    run = run_directory(tmp_path, text, "forest.pkl")
    (run / "artifacts" / "model" / "model.pkl").write_text("old")
    with pytest.raises(errors.UserError, match=r"'forest\.pkl' .* 'model\.pkl'"):
        formats.recognise(run)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MLMODEL.replace("pickled_model: model.pkl", "pickled_model: ../../x.pkl"), "pickled_model"),
        (MLMODEL.replace("pickled_model: model.pkl", "pickled_model: model.skops"), "pickled_model"),
        ("flavors: [1]", "flavors"),
        ("[]", "must be an object"),
        ("a: [", "must be YAML"),
    ],
)
def test_an_unusable_mlmodel_is_refused_with_its_field(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(errors.UserError, match="MLmodel") as raised:
        formats.recognise(run_directory(tmp_path, text))
    assert words in str(raised.value)


def test_a_run_with_several_models_is_refused_with_their_names(tmp_path: Path) -> None:
    run = run_directory(tmp_path)
    (run / "artifacts" / "other").mkdir()
    (run / "artifacts" / "other" / "MLmodel").write_text(MLMODEL)
    with pytest.raises(errors.UserError, match="has logged 2 models") as raised:
        formats.recognise(run)
    assert "artifacts/other" in str(raised.value)


def test_a_hugging_face_directory_is_recognised(tmp_path: Path) -> None:
    model = formats.recognise(hugging_face(tmp_path / "tiny"))
    assert (model.kind, model.framework, model.links_within) == (
        "Hugging Face directory",
        "transformers",
        None,
    )


@pytest.mark.parametrize("below", ["", "snapshots/abc123"])
def test_links_are_followed_in_a_hugging_face_cache(tmp_path: Path, below: str) -> None:
    root = cache(tmp_path)
    model = formats.recognise(root / below)
    assert (model.framework, model.revision) == ("transformers", "abc123")
    assert [(path.parent.name, name) for path, name in formats.files(model)] == [
        ("blobs", "config.json"),
        ("blobs", "model.safetensors"),
    ]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../secret", "../../blobs", "../../blobs/none"])
def test_a_link_is_refused_when_it_leaves_the_cache(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_text("x")
    root = cache(tmp_path)
    (root / "snapshots" / "abc123" / "tokenizer.json").symlink_to(target)
    with pytest.raises(errors.UserError, match=r"tokenizer\.json"):
        list(formats.files(formats.recognise(root)))


def test_a_link_in_another_directory_is_refused_with_a_remedy(tmp_path: Path) -> None:
    directory = hugging_face(tmp_path / "tiny")
    (directory / "extra.bin").symlink_to(directory / "config.json")
    with pytest.raises(errors.UserError, match="cp -rL"):
        list(formats.files(formats.recognise(directory)))


def test_a_cache_is_refused_when_it_has_several_snapshots_and_no_main(tmp_path: Path) -> None:
    root = cache(tmp_path)
    (root / "refs" / "main").unlink()
    (root / "snapshots" / "def456").mkdir()
    with pytest.raises(errors.UserError, match="has 2 snapshots"):
        formats.recognise(root)


@pytest.mark.parametrize("main", [b"..", b".", b"\xff", b"none", b""])
def test_the_only_snapshot_is_chosen_when_main_names_none(tmp_path: Path, main: bytes) -> None:
    root = cache(tmp_path)
    (root / "refs" / "main").write_bytes(main)
    model: Any = formats.recognise(root)
    assert (model.root, model.revision) == (root / "snapshots" / "abc123", "abc123")


def test_other_directories_are_imported_as_files(tmp_path: Path) -> None:
    (tmp_path / "model.joblib").write_text("x")
    model: Any = formats.recognise(tmp_path)
    assert (model.kind, model.framework, model.root) == ("directory", "", tmp_path)
    with pytest.raises(errors.UserError, match="not a directory"):
        formats.recognise(tmp_path / "model.joblib")
