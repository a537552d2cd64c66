"""The output of `slipway model list` and `diff`."""

import datetime as dt
from typing import Any

from serving.cli.model import diff, listing
from serving.cli.model.pull import label, version_name
from serving.cli.output import tables
from serving.objects import Object

NOW = dt.datetime(2026, 1, 1, 0, 10, tzinfo=dt.UTC)


def version(name: str, created: int = 0, **status: Any) -> Object:
    meta = {"name": name, "namespace": "default", "creationTimestamp": f"2026-01-01T00:0{created}:00Z"}
    return {"metadata": meta, "spec": {"modelName": "digits", "source": {"path": "/x"}}, "status": status}


def ready(name: str, files: dict[str, tuple[str, int]], **fields: Any) -> Object:
    listed = [{"path": path, "digest": digest, "size": size} for path, (digest, size) in files.items()]
    size = sum(size for _, size in files.values())
    return version(name, phase="Ready", digest=f"sha256:{name}", size=size, files=listed, **fields)


def test_a_list_shows_readiness_and_users_of_versions() -> None:
    inference = {
        "metadata": {"name": "inf", "namespace": "default"},
        "spec": {"predictors": [{"modelVersion": "v2"}]},
    }
    going = version("v0", 0, phase="Ready")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    versions = [
        version("v2", 2, phase="Ready", size=1_500_000, digest="sha256:" + "ab" * 32),
        version("v1", 1),
        going,
    ]
    text = tables.text(*listing.rows(versions, [inference], NOW, wide=False, namespaced=False))
    rows = [line.split() for line in text.splitlines()]
    assert rows[0][:4] == ["NAME", "MODEL", "PHASE", "SOURCE"]
    assert [row[0] for row in rows[1:]] == ["v0", "v1", "v2"]
    assert [row[2] for row in rows[1:]] == ["Terminating", "Pending", "Ready"]
    assert "1.5 MB" in text
    assert rows[3][-3] == "inf"
    assert "sha256:abababababab " in text


def test_a_diff_shows_added_removed_and_changed_files() -> None:
    a = ready(
        "a",
        {"same": ("1", 5), "gone": ("2", 1000), "other": ("3", 10)},
        metrics={"acc": 0.5, "loss": 1.0},
        lineage={"kind": "Job", "uid": "u1", "path": ""},
    )
    b = ready(
        "b",
        {"same": ("1", 5), "new": ("4", 2000), "other": ("5", 20)},
        metrics={"acc": 0.75, "loss": 1.0},
        lineage={"kind": "Job", "uid": "u2", "path": ""},
    )
    text = "\n".join(diff.lines(a, b))
    rows = [line.split() for line in text.splitlines()]
    assert ["-", "gone", "1.0", "kB", "-"] in rows
    assert ["+", "new", "-", "2.0", "kB"] in rows
    assert ["~", "other", "10", "bytes", "20", "bytes"] in rows
    assert ["acc", "0.5", "0.75"] in rows
    assert ["uid", "u1", "u2"] in rows
    assert "same" not in text
    assert "loss" not in text
    assert text.splitlines()[-1] == "1 added, 1 removed, 1 changed; 1.0 kB -> 2.0 kB"


def test_a_diff_of_the_same_image_names_no_difference() -> None:
    a = ready("a", {"same": ("1", 5)})
    assert list(diff.lines(a, a)) == [
        "same image: sha256:a",
        "0 added, 0 removed, 0 changed; 5 bytes -> 5 bytes",
    ]


def test_a_diff_shows_metrics_that_differ_beyond_six_digits() -> None:
    a = ready("a", {}, metrics={"tokens": 1234567, "acc": 0.98765432, "same": 0.123456789, "far": 1234567})
    b = ready("b", {}, metrics={"tokens": 1234568, "acc": 0.98765441, "same": 0.123456789, "far": 2})
    rows = [line.split() for line in diff.lines(a, b)]
    assert ["tokens", "1234567", "1234568"] in rows
    assert ["acc", "0.98765432", "0.98765441"] in rows
    assert ["far", "1.23457e+06", "2"] in rows
    assert not any("same" in row for row in rows)


def test_names_are_derived_from_references() -> None:
    assert label("Digits_v1.2") == "digits-v1-2"
    assert label("x" * 80) == "x" * 63
    assert label("---") == "model"


def test_the_name_of_a_version_keeps_the_end_when_the_name_of_the_model_is_long() -> None:
    assert version_name("digits", "Run_1") == "digits-run-1"
    assert version_name("m" * 63, "20260101-001000") == "m" * 47 + "-20260101-001000"
    assert version_name("m" * 63, "a" * 40) == "m" * 22 + "-" + "a" * 40
    assert version_name("digits", "t" * 128) == "digits-" + "t" * 56
    assert version_name("m" * 63, "t" * 128) == "m" * 22 + "-" + "t" * 40
