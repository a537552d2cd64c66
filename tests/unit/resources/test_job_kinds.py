"""Kinds of training jobs as data: the shipped manifests, users' own, and the errors of invalid ones."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from serving import errors, job_kinds

MINIMAL: dict[str, Any] = {
    "name": "own",
    "group": "example.com",
    "versions": ["v1"],
    "kinds": {"Training": "trainings"},
    "succeeded": [{"condition": "Done"}],
    "failed": [{"condition": "Broken"}],
    "pods": {"label": "example.com/training"},
}


def written(folder: Path, **fields: Any) -> Path:
    manifest = {**MINIMAL, **fields}
    (folder / f"{manifest['name']}.yaml").write_text(yaml.safe_dump(manifest))
    return folder


def test_kind_of_the_user_is_known_beside_the_shipped_ones(tmp_path: Path) -> None:
    known = job_kinds.known(written(tmp_path))
    own = known.find("example.com", "Training")
    assert own is not None
    assert own.api_kind.at("v1").path("team") == "/apis/example.com/v1/namespaces/team/trainings"
    assert len(list(known)) == len(list(job_kinds.shipped())) + 1


def test_manifest_of_the_user_replaces_the_shipped_one(tmp_path: Path) -> None:
    known = job_kinds.known(written(tmp_path, name="ray"))
    assert known.find("ray.io", "RayJob") is None
    assert known.find("example.com", "Training") is not None


def test_missing_folder_has_no_kinds(tmp_path: Path) -> None:
    assert job_kinds.known(tmp_path / "none") is job_kinds.shipped()


def test_kind_that_two_manifests_have_is_refused(tmp_path: Path) -> None:
    written(tmp_path, group="ray.io", kinds={"RayJob": "rayjobs"})
    with pytest.raises(
        errors.UserError, match=r"own\.yaml: kinds: RayJob of ray\.io is in ray\.yaml already"
    ):
        job_kinds.known(tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group": ""}, "group: String should match pattern"),
        ({"versions": []}, "versions: List should have at least 1 item"),
        ({"versions": ["1"]}, "versions.0: String should match pattern"),
        ({"kinds": {"training": "trainings"}}, "kinds.training.[key]: String should match pattern"),
        ({"kinds": {"Training": "a/b"}}, "kinds.Training: String should match pattern"),
        ({"succeeded": []}, "succeeded: List should have at least 1 item"),
        (
            {"succeeded": [{}]},
            "succeeded.0: Value error, exactly one of condition and fields must be set, got {}",
        ),
        (
            {"failed": [{"condition": "Broken", "fields": {"status.a": ["b"]}}]},
            "failed.0: Value error, exactly one of condition and fields must be set",
        ),
        (
            {"failed": [{"fields": {"spec.a": ["b"]}}]},
            "failed.0.fields.spec.a.[key]: String should match pattern",
        ),
        (
            {"failed": [{"fields": {"status.a": []}}]},
            "failed.0.fields.status.a: List should have at least 1 item",
        ),
        ({"pods": {"label": "a b"}}, "pods.label: String should match pattern"),
        ({"pods": {"label": "a", "value": "spec.x"}}, "pods.value: String should match pattern"),
        (
            {"pods": {"label": "a", "phases": ["Failed"]}},
            "pods.phases.0: Input should be 'Running' or 'Succeeded'",
        ),
        ({"colour": "red"}, "colour: Extra inputs are not permitted, got 'red'"),
    ],
)
def test_invalid_manifest_is_refused_with_file_field_and_value(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    folder = written(tmp_path, **fields)
    with pytest.raises(errors.UserError) as refused:
        job_kinds.known(folder)
    assert f"own.yaml: {message}" in str(refused.value)
