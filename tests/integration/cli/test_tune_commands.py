"""`slipway tune` against the real API, with experiments and trials made by hand in every phase."""

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.cli.config import snapshot
from serving.cli.config.schema import Configuration
from serving.cli.tune import change
from serving.data_dir import DataDir
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from tests.objects.tuning.tuned_experiments import (
    condition,
    experiment,
    experiment_spec,
    measured,
    recommendation,
    trial,
)
from tests.rig.command_line import Slipway, command_line
from tuner.settings import LoadSettings, TunerSettings
from tuner.specs import rendering

SPEC = ("500m", "512Mi", "16", "1")
pytestmark = pytest.mark.timeout(60)


async def store(kube: Kube, kind: kinds.Kind, obj: Object) -> Object:
    """Create the object, or replace its status."""
    body = {
        "apiVersion": kind.api_version, "kind": kind.kind, **obj,
        "metadata": {**obj["metadata"], "namespace": kube.namespace},
    }  # fmt: skip
    existing = await kube.list(kind, kube.namespace, fields=f"metadata.name={obj['metadata']['name']}")
    stored = existing.items[0] if existing.items else await kube.create(kind, body)
    if "status" in obj:
        stored = await kube.update(kind, {**stored, "status": obj["status"]}, subresource="status")
    return stored


async def experiment_is(kube: Kube, **status: Any) -> None:
    await store(kube, kinds.PROFILING_EXPERIMENT, experiment(**status))


def manifest(where: Path, *documents: Object) -> str:
    file = where / "tuning.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


async def test_an_experiment_is_started_and_its_size_is_printed(
    kube: Kube, slipway: Slipway, tmp_path: Path
) -> None:
    file = manifest(tmp_path, {**experiment(), "metadata": {"name": "digits"}})
    code, out, err = await slipway("tune", "-f", file)
    assert (code, out) == (0, "profilingexperiment.slipway.dev/digits created\n"), err
    assert err.splitlines() == [
        "digits: 16 specs, at most 20 trials", "Follow it with `slipway tune status digits -w`.",
    ]  # fmt: skip
    assert (await slipway("tune", "-f", file))[1] == "profilingexperiment.slipway.dev/digits unchanged\n"
    code, out, _ = await slipway("tune", "status", "digits")
    assert (code, out.splitlines()[1].split()[:2]) == (0, ["digits", "Pending"])


async def test_an_invalid_space_is_refused_with_its_field_before_anything_is_applied(
    kube: Kube, slipway: Slipway, tmp_path: Path
) -> None:
    spec = experiment_spec()
    spec["tunableParameters"][0]["parameters"][0]["feasibleSpace"] = {"min": "1", "max": "2", "step": "0"}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "requests"}, "data": {"a": "b"}}
    file = manifest(tmp_path, other, {**experiment(spec=spec), "metadata": {"name": "digits"}})
    code, out, err = await slipway("tune", "-f", file)
    assert (code, out) == (6, "")
    assert f"{file} document 2: ProfilingExperiment digits: spec.tunableParameters[0].parameters[0]" in err
    assert "step" in err
    assert (await slipway("get", "cm", "requests"))[0] == 3


async def test_a_manifest_without_an_experiment_is_not_started(slipway: Slipway, tmp_path: Path) -> None:
    model = {"apiVersion": "slipway.dev/v1alpha1", "kind": "Model", "metadata": {"name": "m"}, "spec": {}}
    code, _, err = await slipway("tune", "-f", manifest(tmp_path, model))
    assert (code, "there is no ProfilingExperiment in" in err) == (1, True)
    assert (await slipway("tune", "--watch"))[0] == 2


async def test_status_prints_the_object_for_scripts(kube: Kube, slipway: Slipway) -> None:
    await experiment_is(kube, phase="Running", specs=16, expectedRegret=0.25)
    code, out, _ = await slipway("tune", "status", "digits", "-o", "json")
    assert (code, json.loads(out)["status"]["expectedRegret"]) == (0, 0.25)
    assert (
        yaml.safe_load((await slipway("tune", "status", "digits", "-o", "yaml"))[1])["kind"]
        == "ProfilingExperiment"
    )
    assert (await slipway("tune", "status", "nobody"))[0] == 3
    assert (await slipway("tune", "status", "digits", "-w", "-o", "json"))[0] == 1


@contextlib.asynccontextmanager
async def following(kube: Kube, api_server: DataDir) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "serving.app", "tune", "status", "digits", "-w", "-n", kube.namespace,
        "--kubeconfig", str(api_server.kubeconfig), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(30):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def next_line(process: asyncio.subprocess.Process) -> str:
    """Return the next line without its time; empty at the end."""
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    return line.split(maxsplit=1)[1].rstrip() if line else ""


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
async def test_following_prints_each_step_and_ends_with_the_experiment(
    kube: Kube, api_server: DataDir, phase: str, code: int
) -> None:
    await experiment_is(kube, phase="Running", specs=16)
    async with following(kube, api_server) as process:
        assert await next_line(process) == "Running"
        await store(kube, kinds.TRIAL, trial(1, *SPEC, phase="Measuring"))
        assert (await next_line(process)).startswith("digits-1 ")  # Pending, or Measuring already
        await store(kube, kinds.TRIAL, measured(1, *SPEC))
        line = await next_line(process)
        if line == "digits-1 Measuring":
            line = await next_line(process)
        assert line == "digits-1 Measured, 114 (111 to 117) req/s, p99 84.1 ms"
        await experiment_is(
            kube, phase=phase, specs=16, conditions=[condition("False", "BudgetUsed", "16 trials ended")],
            best=recommendation(*SPEC), completionTime="2026-01-01T00:03:00Z",
        )  # fmt: skip
        assert await next_line(process) == f"{phase}: BudgetUsed: 16 trials ended"
        assert await next_line(process) == ""
        assert await process.wait() == code


async def test_the_end_of_an_earlier_spec_is_not_taken_for_the_end(kube: Kube, api_server: DataDir) -> None:
    await experiment_is(kube, phase="Succeeded")
    await kube.patch(kinds.PROFILING_EXPERIMENT, kube.namespace, "digits", {"spec": {"maxNumTrials": 30}})
    async with following(kube, api_server) as process:
        assert await next_line(process) == "Pending"
        await experiment_is(kube, phase="Failed", observedGeneration=2)
        assert (await next_line(process)).startswith("Failed")
        assert await process.wait() == 1


async def test_stop_and_resume_print_the_change(kube: Kube, slipway: Slipway) -> None:
    name = "profilingexperiment.slipway.dev/digits"
    await experiment_is(kube, phase="Running")
    assert (await slipway("tune", "resume", "digits"))[1] == f"{name} is active already\n"
    assert (await slipway("tune", "stop", "digits"))[1].startswith(f"{name} stopped: ")
    stored = await kube.get(kinds.PROFILING_EXPERIMENT, kube.namespace, "digits")
    assert stored["spec"]["suspend"] is True
    assert (await slipway("tune", "stop", "digits"))[1] == f"{name} is stopped already\n"
    assert (await slipway("tune", "resume", "digits"))[1] == f"{name} resumed\n"
    await experiment_is(kube, phase="Succeeded", observedGeneration=3)
    assert (await slipway("tune", "stop", "digits"))[1] == f"{name} has ended (Succeeded); nothing changed\n"


async def test_describe_lists_the_trials(kube: Kube, slipway: Slipway) -> None:
    await experiment_is(
        kube, phase="Running", specs=16, best=recommendation(*SPEC),
        conditions=[condition("False", "Searching", "1 of 20")],
    )  # fmt: skip
    await store(kube, kinds.TRIAL, measured(1, *SPEC))
    await store(kube, kinds.TRIAL, {**measured(1, *SPEC, of="other")})
    code, out, _ = await slipway("describe", "pe", "digits")
    assert code == 0
    trials = out.split("\nTrials:\n")[1].split("\n\n")[0].splitlines()
    assert len(trials) == 2
    assert "Measured" in trials[1]
    assert "Searching" in out.split("\nConditions:\n")[1]
    assert "\nEvents:\n" in out
    header, row = (await slipway("get", "pe"))[1].splitlines()
    assert header.split()[:2] == ["NAME", "PHASE"]
    assert row.split()[:2] == ["digits", "Running"]


async def recommended(kube: Kube) -> None:
    """Store an Inference of a ready version, and an ended experiment on it with a recommendation."""
    version = {
        "apiVersion": "slipway.dev/v1alpha1", "kind": "ModelVersion", "metadata": {"name": "v1"},
        "spec": {"modelName": "digits", "source": {"path": "/x"}},
        "status": {"phase": "Ready", "image": "slipway.local/x/digits@sha256:1", "digest": "sha256:1"},
    }  # fmt: skip
    made = await store(kube, kinds.MODEL_VERSION, version)
    arm = {"name": "canary", "modelVersion": "v1", "resources": {"cpu": "1", "memory": "1Gi"}}
    inference = await store(
        kube,
        kinds.INFERENCE,
        {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": [arm]}},
    )
    succeeded = experiment(phase="Succeeded", recommendation=recommendation(*SPEC), expectedRegret=0.005)
    await store(kube, kinds.PROFILING_EXPERIMENT, succeeded)
    tuning = change.recommendation_of(succeeded)
    source = rendering.tuned_target(tuning.spec.target, inference, {})
    template = rendering.pod(source, made, tuning.settings, tuning.prices).template
    await store(kube, kinds.TRIAL, measured(3, *SPEC, template=template))


async def predictor(kube: Kube) -> Object:
    first: Object = (await kube.get(kinds.INFERENCE, kube.namespace, "digits"))["spec"]["predictors"][0]
    return first


async def test_a_recommendation_is_shown_then_applied_then_there(kube: Kube, slipway: Slipway) -> None:
    await recommended(kube)
    before = await predictor(kube)
    code, out, err = await slipway("tune", "apply", "digits", "--dry-run")
    assert (code, await predictor(kube)) == (0, before), err
    assert out.splitlines()[-1] == "inference.slipway.dev/digits predictor canary configured (dry run)"
    assert "50% less" in err
    code, applied, _ = await slipway("tune", "apply", "digits")
    assert (code, applied) == (0, out.replace(" (dry run)", ""))
    after = await predictor(kube)
    assert (after["resources"], after["batching"]["batchSize"]) == ({"cpu": "500m", "memory": "512Mi"}, 16)
    assert after["template"]["containers"][0]["env"] == [{"name": "OMP_NUM_THREADS", "value": "1"}]
    code, out, _ = await slipway("tune", "apply", "digits")
    assert (code, out) == (
        0,
        "inference.slipway.dev/digits unchanged: predictor canary runs this spec already\n",
    )
    assert await predictor(kube) == after


async def test_an_apply_of_other_values_names_the_manager_that_tuned_them(
    kube: Kube, slipway: Slipway, tmp_path: Path
) -> None:
    await recommended(kube)
    arm = {"name": "canary", "modelVersion": "v1", "resources": {"cpu": "1", "memory": "1Gi"}}
    spec = {"framework": "sklearn", "predictors": [arm]}
    file = manifest(
        tmp_path,
        {
            "apiVersion": "slipway.dev/v1alpha1",
            "kind": "Inference",
            "metadata": {"name": "digits"},
            "spec": spec,
        },
    )
    assert (await slipway("apply", "-f", file))[0] == 0
    assert (await slipway("tune", "apply", "digits"))[0] == 0
    code, _, err = await slipway("apply", "-f", file)
    assert (code, "`slipway tune apply`" in err) == (4, True)


async def test_a_predictor_that_was_changed_since_is_refused_unless_forced(
    kube: Kube, slipway: Slipway
) -> None:
    await recommended(kube)
    other = {"containers": [{"name": "predictor", "env": [{"name": "MODE", "value": "slow"}]}]}
    patch = [{"op": "add", "path": "/spec/predictors/0/template", "value": other}]
    await kube.patch(
        kinds.INFERENCE, kube.namespace, "digits", patch, content_type="application/json-patch+json"
    )
    before = await predictor(kube)
    code, out, err = await slipway("tune", "apply", "digits")
    assert (code, out, await predictor(kube)) == (1, "", before)
    assert "env[MODE]" in err
    assert (await slipway("tune", "apply", "digits", "--force"))[0] == 0
    names = [entry["name"] for entry in (await predictor(kube))["template"]["containers"][0]["env"]]
    assert names == ["MODE", "OMP_NUM_THREADS"]


async def test_an_experiment_without_a_recommendation_is_not_applied(kube: Kube, slipway: Slipway) -> None:
    await experiment_is(kube, phase="Running", specs=16)
    code, _, err = await slipway("tune", "apply", "digits")
    assert (code, "has no recommendation yet: Running" in err) == (1, True)
    assert (await slipway("tune", "apply", "nobody"))[0] == 3


async def test_a_model_version_gets_a_manifest_that_can_be_applied(
    kube: Kube, slipway: Slipway, tmp_path: Path
) -> None:
    await recommended(kube)
    spec = experiment_spec(target={"modelVersion": "v1", "framework": "sklearn"})
    succeeded = experiment("fresh", spec=spec, phase="Succeeded", recommendation=recommendation(*SPEC))
    await store(kube, kinds.PROFILING_EXPERIMENT, succeeded)
    code, out, err = await slipway("tune", "apply", "fresh")
    assert (code, "a replica costs 0.0225 an hour" in err) == (0, True)
    file = tmp_path / "made.yaml"
    file.write_text(out.replace("name: digits", "name: made"))
    assert (await slipway("apply", "-f", str(file)))[1] == "inference.slipway.dev/made created\n"


async def test_an_engine_of_the_user_gets_a_manifest(
    kube: Kube, slipway: Slipway, api_server: DataDir
) -> None:
    await recommended(kube)
    api_server.engines.mkdir(exist_ok=True)
    (api_server.engines / "own-mine.yaml").write_text(
        "{name: own-mine, image: 'registry.example/mine:1', readiness: /r, liveness: /l}"
    )
    spec = experiment_spec(target={"modelVersion": "v1", "framework": "own-mine"})
    succeeded = experiment("own", spec=spec, phase="Succeeded", recommendation=recommendation(*SPEC))
    await store(kube, kinds.PROFILING_EXPERIMENT, succeeded)
    code, out, err = await slipway("tune", "apply", "own")
    assert (code, "framework: own-mine\n" in out) == (0, True), err


def left(where: Path) -> list[str]:
    return sorted(path.name for path in where.iterdir())


async def test_a_report_is_printed_and_written(
    kube: Kube, slipway: Slipway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await recommended(kube)
    monkeypatch.chdir(tmp_path)
    code, text, err = await slipway("tune", "report", "digits")
    assert (code, text.startswith("Run cpu=500m memory=512Mi batchSize=16 OMP_NUM_THREADS=1")) == (
        0,
        True,
    ), err
    code, out, _ = await slipway("tune", "report", "digits", "-o", "json")
    assert json.loads(out)["answer"]["trial"] == "digits-3"
    assert (await slipway("tune", "report", "digits", "-o", "html"))[1] == "wrote digits.html\n"
    page = (tmp_path / "digits.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert text.splitlines()[0] in page
    assert (await slipway("tune", "report", "digits", "--out", "it.json"))[1] == "wrote it.json\n"
    assert json.loads((tmp_path / "it.json").read_text())["name"] == "digits"
    assert left(tmp_path) == ["digits.html", "it.json"]


async def test_a_report_has_the_settings_of_up_when_no_file_is_given(
    kube: Kube, api_server: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await recommended(kube)
    directory = DataDir(tmp_path)  # the API server's own one has no configuration of an `up`
    shutil.copy(api_server.kubeconfig, directory.kubeconfig)
    # Latencies from the timeout on are unknown: no trial is the best one for a bound on them.
    of_up = replace(TunerSettings(), load=LoadSettings(request_timeout=0.05))
    snapshot.write(directory.configuration, replace(Configuration(), tuner=of_up))
    file = tmp_path / "given.yaml"
    file.write_text("tuner: {load: {request_timeout: 20}}\n")
    slipway = command_line(directory.kubeconfig, kube.namespace, capsys)
    for options, is_known in ((), False), (("--config", str(file)), True):
        code, out, err = await slipway("tune", "report", "digits", "-o", "json", *options)
        assert code == 0, err
        latency = next(bound for bound in json.loads(out)["bounds"] if bound["constraint"] == 0)
        assert any(segment["trial"] for segment in latency["segments"]) == is_known
    code, _, err = await slipway("tune", "report", "digits", "--config", str(tmp_path / "absent.yaml"))
    assert (code, f"{tmp_path / 'absent.yaml'}: no such file" in err) == (1, True)


async def test_a_report_that_cannot_be_written_is_refused_with_its_path(
    kube: Kube, slipway: Slipway, tmp_path: Path
) -> None:
    await recommended(kube)
    missing = tmp_path / "missing" / "it.html"
    code, _, err = await slipway("tune", "report", "digits", "--out", str(missing))
    assert (code, f"cannot write {missing}: No such file or directory" in err) == (1, True)
    code, _, err = await slipway("tune", "report", "digits", "--out", str(tmp_path / "it.pdf"))
    assert (code, "is not a .html, .json or .txt" in err) == (1, True)
