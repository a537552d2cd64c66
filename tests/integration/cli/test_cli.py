"""The command line against a real embedded API: its output and its exit codes."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.cli import main
from serving.cli.session import answers
from serving.data_dir import DataDir

MODEL = "apiVersion: slipway.dev/v1alpha1\nkind: Model\nmetadata: {name: NAME}\nspec: {description: TEXT}\n"
INFERENCE = """
apiVersion: slipway.dev/v1alpha1
kind: Inference
metadata: {name: cli}
spec:
  framework: sklearn
  predictors:
  - {name: stable, modelVersion: v1, trafficWeight: 90}
  - {name: canary, modelVersion: v2, trafficWeight: 10}
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDir]:
    place = DataDir(tmp_path_factory.mktemp("cli") / "data")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place.root.mkdir()
    place.config.write_text(f"api: {{port: {port}}}\n")
    api = subprocess.Popen(
        [sys.executable, "-m", "serving.app", "component", "api", "--data-dir", str(place.root)],
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not asyncio.run(answers(place.kubeconfig)):
        assert time.monotonic() < deadline
        assert api.poll() is None
        time.sleep(0.1)
    yield place
    api.terminate()
    assert api.wait(20) == 0


@pytest.fixture
def slipway(where: DataDir, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.run([*arguments, "--kubeconfig", str(where.kubeconfig)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(ended.value.code or 0), out, err

    return run


def manifest(tmp_path: Path, text: str) -> str:
    file = tmp_path / "manifest.yaml"
    file.write_text(text)
    return str(file)


def test_apply_prints_created_then_unchanged_then_configured(slipway: Any, tmp_path: Path) -> None:
    first = manifest(tmp_path, MODEL.replace("NAME", "mo1").replace("TEXT", "one"))
    assert slipway("apply", "-f", first) == (0, "model.slipway.dev/mo1 created\n", "")
    assert slipway("apply", "-f", first) == (0, "model.slipway.dev/mo1 unchanged\n", "")
    assert slipway("get", "mo", "mo1", "-o", "json")[1].find('"one"') > 0
    second = manifest(tmp_path, MODEL.replace("NAME", "mo1").replace("TEXT", "two"))
    assert slipway("apply", "-f", second) == (0, "model.slipway.dev/mo1 configured\n", "")


def test_a_dry_run_changes_nothing(slipway: Any, tmp_path: Path) -> None:
    file = manifest(tmp_path, MODEL.replace("NAME", "dry").replace("TEXT", "x"))
    assert slipway("apply", "--dry-run", "-f", file)[:2] == (0, "model.slipway.dev/dry created (dry run)\n")
    assert slipway("get", "model", "dry")[0] == 3
    assert slipway("apply", "-f", file)[0] == 0
    assert slipway("apply", "--dry-run", "-f", file)[1] == "model.slipway.dev/dry unchanged (dry run)\n"
    changed = manifest(tmp_path, MODEL.replace("NAME", "dry").replace("TEXT", "z"))
    assert slipway("apply", "--dry-run", "-f", changed)[1] == "model.slipway.dev/dry configured (dry run)\n"
    assert '"x"' in slipway("get", "model", "dry", "-o", "json")[1]


def test_a_valid_document_is_applied_when_another_is_refused_by_name(slipway: Any, tmp_path: Path) -> None:
    bad = INFERENCE.replace("trafficWeight: 10", "trafficWeight: -3").replace("name: cli", "name: bad")
    file = manifest(tmp_path, bad + "---\n" + MODEL.replace("NAME", "beside").replace("TEXT", "x"))
    code, out, err = slipway("apply", "-f", file)
    assert (code, out) == (6, "model.slipway.dev/beside created\n")
    assert f"{file} document 1" in err
    assert "spec.predictors[1].trafficWeight" in err
    assert "-3" in err
    assert slipway("get", "inference", "bad")[0] == 3


def test_an_unknown_field_is_refused_by_its_path(slipway: Any, tmp_path: Path) -> None:
    file = manifest(tmp_path, INFERENCE.replace("framework:", "framwork: x\n  framework:"))
    code, _, err = slipway("apply", "-f", file)
    assert code == 6
    assert "spec.framwork" in err


def test_traffic_set_changes_named_arms_only_and_survives_an_apply(slipway: Any, tmp_path: Path) -> None:
    file = manifest(tmp_path, INFERENCE)
    assert slipway("apply", "-f", file)[0] == 0
    assert slipway("traffic", "set", "cli", "canary=30")[0] == 0
    inference = json.loads(slipway("get", "inf", "cli", "-o", "json")[1])
    assert [p["trafficWeight"] for p in inference["spec"]["predictors"]] == [90, 30]
    code, _, err = slipway("apply", "-f", file)
    assert code == 4
    assert 'spec.predictors[name="canary"].trafficWeight is 30, the manifest has 10' in err
    assert "`slipway traffic set`" in err
    assert "--force-conflicts" in err
    without = manifest(tmp_path, INFERENCE.replace(", trafficWeight: 10", ""))
    assert slipway("apply", "-f", without)[0] == 0
    inference = json.loads(slipway("get", "inf", "cli", "-o", "json")[1])
    assert [p["trafficWeight"] for p in inference["spec"]["predictors"]] == [90, 30]
    file = manifest(tmp_path, INFERENCE)
    assert slipway("apply", "--force-conflicts", "-f", file)[0] == 0
    assert slipway("traffic", "set", "cli", "nobody=1")[::2] == (
        1,
        "error: Inference cli has no arm nobody; its arms are stable, canary\n",
    )


def test_tables_have_upper_case_headers_and_the_namespace_first_with_all(
    slipway: Any, tmp_path: Path
) -> None:
    model = "apiVersion: slipway.dev/v1alpha1\nkind: Model\nmetadata: {name: listed}\nspec: {}\n"
    assert slipway("apply", "-f", manifest(tmp_path, model))[0] == 0
    assert slipway("get", "ns")[1].splitlines()[0].split() == ["NAME", "STATUS", "AGE"]
    assert slipway("get", "models", "-A")[1].split()[0] == "NAMESPACE"
    assert slipway("get", "models", "-o", "name")[1].startswith("model.slipway.dev/")


def test_objects_print_as_json_yaml_and_names_also_without_a_kind(slipway: Any, tmp_path: Path) -> None:
    slipway("apply", "-f", manifest(tmp_path, INFERENCE.replace("name: cli", "name: printed")))
    listed = json.loads(slipway("get", "-o", "json")[1])
    assert listed["kind"] == "List"
    assert "printed" in [item["metadata"]["name"] for item in listed["items"]]
    printed = yaml.safe_load(slipway("get", "inf/printed", "-o", "yaml")[1])
    assert "managedFields" not in printed["metadata"]
    assert slipway("get", "inf", "printed", "-o", "name")[1] == "inference.slipway.dev/printed\n"
    wide = slipway("get", "mv", "-o", "wide")
    assert wide[0] == 0
    assert slipway("get", "inf,mo", "-w")[:2] == (1, "")


def test_options_before_the_command_choose_the_namespace(slipway: Any, tmp_path: Path) -> None:
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: elsewhere}\n"
    assert slipway("apply", "-f", manifest(tmp_path, namespace))[0] == 0
    file = manifest(tmp_path, MODEL.replace("NAME", "away").replace("TEXT", "x"))
    assert slipway("-n", "elsewhere", "apply", "-f", file)[0] == 0
    assert slipway("get", "model", "away")[0] == 3
    printed = slipway("-n=elsewhere", "get", "model", "away", "-o=jsonpath={.metadata.namespace}")
    assert printed == (0, "elsewhere", "")
    listed = slipway("-n", "elsewhere", "model", "list", "-o", "custom-columns=NAME:.metadata.name")
    assert listed == (0, "NAME\n", "")


def test_fields_select_objects_in_every_form(slipway: Any, tmp_path: Path) -> None:
    for name in ("chosen", "other"):
        file = manifest(tmp_path, MODEL.replace("NAME", name).replace("TEXT", "x"))
        assert slipway("apply", "-f", file)[0] == 0
    selected = ("get", "models", "--field-selector", "metadata.name=chosen")
    assert slipway(*selected, "-o", "name") == (0, "model.slipway.dev/chosen\n", "")
    assert [row.split()[0] for row in slipway(*selected)[1].splitlines()] == ["NAME", "chosen"]
    code, out, err = slipway("get", "models", "--field-selector", "spec.nope=1")
    assert (code, out) == (6, "")
    assert "spec.nope" in err


def test_secrets_are_not_shown_by_describe(slipway: Any, tmp_path: Path) -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {key: aHVzaA==}\n"
    slipway("apply", "-f", manifest(tmp_path, secret))
    code, out, _ = slipway("describe", "secret", "s")
    assert code == 0
    assert "aHVzaA" not in out
    assert "key: 8 characters" in out


def test_an_empty_list_is_reported_on_standard_error_with_exit_code_0(slipway: Any) -> None:
    assert slipway("get", "jobs") == (0, "", "No resources found in namespace default.\n")


def test_delete_waits_until_the_object_is_gone(slipway: Any, tmp_path: Path) -> None:
    file = manifest(tmp_path, MODEL.replace("NAME", "gone").replace("TEXT", "x"))
    slipway("apply", "-f", file)
    assert slipway("delete", "-f", file)[:2] == (0, "model.slipway.dev/gone deleted\n")
    assert slipway("delete", "model", "gone")[0] == 3
    assert slipway("delete", "model", "gone", "--ignore-not-found")[0] == 0


def test_delete_continues_and_exits_with_the_first_code_when_the_api_refuses_an_object(
    slipway: Any, tmp_path: Path
) -> None:
    for name in ("first", "last"):
        slipway("apply", "-f", manifest(tmp_path, MODEL.replace("NAME", name).replace("TEXT", "x")))
    names = ("first", "no#name", "missing", "last")
    code, out, err = slipway("delete", "model", *names, "--ignore-not-found")
    assert code == 6, err
    assert out == "model.slipway.dev/first deleted\nmodel.slipway.dev/last deleted\n"
    assert (err.count("error: "), "no#name" in err) == (1, True), err
    code, _, err = slipway("delete", "model", *names)
    assert (code, err.count("error: ")) == (3, 4), err


def test_describe_has_metadata_and_events(slipway: Any, tmp_path: Path) -> None:
    slipway("apply", "-f", manifest(tmp_path, MODEL.replace("NAME", "seen").replace("TEXT", "x")))
    code, out, _ = slipway("describe", "model", "seen")
    assert code == 0
    assert "Name:" in out
    assert "Events:" in out


def test_an_unknown_kind_is_refused_with_the_known_kinds_and_an_unknown_option_with_2(slipway: Any) -> None:
    code, _, err = slipway("get", "inferense")
    assert code == 1
    assert "inferences (inf)" in err
    assert slipway("get", "--bogus")[0] == 2


def test_a_wrong_token_has_its_own_exit_code(
    tmp_path: Path, where: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    config = yaml.safe_load(where.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "guessed"}
    wrong = tmp_path / "kubeconfig"
    wrong.write_text(yaml.safe_dump(config))
    with pytest.raises(SystemExit) as ended:
        main.run(["get", "ns", "--kubeconfig", str(wrong)])
    assert ended.value.code == 7
    assert "token is not accepted" in capsys.readouterr().err


def test_no_api_has_its_own_exit_code(
    tmp_path: Path, where: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = tmp_path / "kubeconfig"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        config = yaml.safe_load(where.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{probe.getsockname()[1]}"
    dead.write_text(yaml.safe_dump(config))
    with pytest.raises(SystemExit) as ended:
        main.run(["get", "ns", "--kubeconfig", str(dead)])
    assert ended.value.code == 5
    assert "slipway up" in capsys.readouterr().err


def test_delete_of_a_selector_deletes_the_objects_with_these_labels_alone(
    slipway: Any, tmp_path: Path
) -> None:
    for name, team in (("one", "red"), ("two", "red"), ("three", "blue")):
        labelled = MODEL.replace("NAME", f"{name}, labels: {{team: {team}}}").replace("TEXT", "x")
        assert slipway("apply", "-f", manifest(tmp_path, labelled))[0] == 0
    code, out, _ = slipway("delete", "model", "-l", "team=red")
    assert (code, sorted(out.splitlines())) == (
        0,
        ["model.slipway.dev/one deleted", "model.slipway.dev/two deleted"],
    )
    assert slipway("get", "model", "-l", "team", "-o", "name")[1] == "model.slipway.dev/three\n"
    assert slipway("delete", "model", "-l", "team=red") == (0, "", "No resources found.\n")
    assert slipway("delete", "model")[0] == 1
    assert slipway("delete", "model", "three", "-l", "team=blue")[0] == 1


def test_weights_that_are_all_zero_are_refused_in_one_line_without_the_spec(
    slipway: Any, tmp_path: Path
) -> None:
    slipway("apply", "-f", manifest(tmp_path, INFERENCE.replace("name: cli", "name: zero")))
    code, _, err = slipway("traffic", "set", "zero", "stable=0", "canary=0")
    assert code == 6
    assert err.count("at least one predictor needs a trafficWeight above 0") == 1
    assert "framework" not in err
    code, out, _ = slipway("traffic", "set", "zero", "canary=25%")
    assert code == 0
    assert [line.split()[2:4] for line in out.splitlines()[1:]] == [["90", "75%"], ["30", "25%"]]
