"""`slipway convert`: manifests on standard output, losses on standard error, nothing after an error."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from serving.cli import main

MORPHLINGS = """
apiVersion: morphling.kubedl.io/v1alpha1
kind: ProfilingExperiment
metadata: {name: NAME}
spec:
  objective: {type: maximize, objectiveMetricName: qps}
  maxNumTrials: 4
  tunableParameters:
  - category: resource
    parameters: [{name: cpu, parameterType: discrete, feasibleSpace: {list: [500m, "2"]}}]
  servicePodTemplate:
    template:
      spec: {containers: [{name: s, image: example/s, readinessProbe: {httpGet: {path: /, port: 8080}}}]}
"""
Ended = tuple[int, str, str]


@pytest.fixture
def slipway(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main.run(list(arguments))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def test_converted_manifests_are_printed_and_losses_on_standard_error(
    slipway: Callable[..., Ended], tmp_path: Path
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(MORPHLINGS + "---" + MORPHLINGS.replace("NAME", "other"))
    code, out, err = slipway("convert", "-f", str(file))
    assert code == 0
    manifests = list(yaml.safe_load_all(out))
    assert [manifest["metadata"]["name"] for manifest in manifests] == ["NAME", "other"]
    assert {manifest["apiVersion"] for manifest in manifests} == {"slipway.dev/v1alpha1"}
    first, _ = err.splitlines()
    assert first.startswith(f"{file} document 1: spec.servicePodTemplate.template.spec.containers[0].image: ")


def test_converted_manifests_are_unchanged_when_converted_again(
    slipway: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(MORPHLINGS)
    _, printed, _ = slipway("convert", "-f", str(file), "--model-version", "s-v1")
    monkeypatch.setattr("sys.stdin", io.StringIO(printed))
    code, out, err = slipway("convert", "-f", "-", "-o", "json")
    assert (code, err) == (0, "")
    assert json.loads(out) == yaml.safe_load(printed)


def test_nothing_is_printed_when_one_manifest_cannot_be_converted(
    slipway: Callable[..., Ended], tmp_path: Path
) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(MORPHLINGS + "---" + MORPHLINGS.replace("qps", "rt"))
    code, out, err = slipway("convert", "-f", str(file))
    assert (code, out) == (1, "")
    assert f"{file} document 2: spec.objective.objectiveMetricName: must be qps" in err
