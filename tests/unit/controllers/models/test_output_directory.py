from pathlib import Path
from typing import Any

import pytest

from serving import errors
from serving.controllers.models.output_directory import locate
from serving.data_dir import DataDir

DATA = DataDir(Path("/data"))
JOB = {"kind": "Job", "metadata": {"name": "train"}}


def pod(output: str = "/out/model", volume: dict[str, Any] | None = None, **mount: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [
                {
                    "name": "train",
                    "env": [{"name": "SLIPWAY_OUTPUT_DIR", "value": output}],
                    "volumeMounts": [{"name": "out", "mountPath": "/out", **mount}],
                }
            ],
            "volumes": [{"name": "out", **(volume or {"emptyDir": {}})}],
        },
        "status": {"phase": "Succeeded"},
    }


def test_empty_dir_is_located_below_the_directory_of_the_pod() -> None:
    assert locate(JOB, [pod()], DATA).path == Path("/data/pods/u1/volumes/out/model")
    assert locate(JOB, [pod(subPath="a")], DATA).path == Path("/data/pods/u1/volumes/out/a/model")


def test_host_path_is_located_unchanged() -> None:
    output = locate(JOB, [pod(volume={"hostPath": {"path": "/srv/x"}})], DATA)
    assert output == (Path("/srv/x/model"), Path("/srv/x"), "u1")


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([], "OutputGone"),
        ([pod(output="/elsewhere")], "OutputNotOnVolume"),
        ([pod(output="/out/../etc")], "OutputNotOnVolume"),
        ([pod(volume={"configMap": {"name": "x"}})], "OutputNotOnVolume"),
    ],
)
def test_output_that_cannot_be_captured_is_refused_with_a_reason(
    pods: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(errors.Permanent) as refused:
        locate(JOB, pods, DATA)
    assert refused.value.reason == reason
