"""`slipway autoscale` on a small trace, against the real API and against a gateway's page of metrics."""

import asyncio
import contextlib
import itertools
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from serving.cli import main
from serving.cli.autoscale.sources import text
from serving.data_dir import DataDir
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds, names
from tests.objects import simulations
from tests.rig.command_line import Ended, Slipway

pytestmark = pytest.mark.timeout(90)


async def stored(kube: Kube, name: str = "digits-stable", **status: Any) -> Object:
    """Create an Autoscaler of digits/stable with a status."""
    labels = {names.INFERENCE_LABEL: "digits", names.PREDICTOR_LABEL: "stable"}
    spec = {"scaleTargetRef": {"name": "digits-1"}, "minReplicas": 0, "maxReplicas": 9}
    body = {"metadata": {"name": name, "namespace": kube.namespace, "labels": labels}, "spec": spec}
    autoscaler = await kube.create(kinds.AUTOSCALER, body)
    if status:
        await kube.apply_status(kinds.AUTOSCALER, autoscaler, status)
    return autoscaler


DECIDED = {
    "desiredReplicas": 3,
    "currentReplicas": 3,
    "readyReplicas": 2,
    "reason": "for the load expected within 45 s",
    "decision": {
        "time": "2026-11-22T05:00:00Z",
        "rule": "Forecast",
        "needed": 3,
        "rate": 11.0,
        "capacity": 5.0,
        "forecast": {"horizonSeconds": 45, "lower": 9.5, "median": 12, "upper": 14.2},
    },
}


async def test_status_lists_every_autoscaler_of_the_namespace(slipway: Slipway, kube: Kube) -> None:
    await stored(kube, **DECIDED)
    await stored(kube, "other")
    code, out, _ = await slipway("autoscale", "status")
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == ["NAME", "digits-stable", "other"]
    assert "Forecast" in lines[1]
    assert "14.2" in lines[1]


async def test_status_and_explain_accept_a_predictor_of_an_inference(slipway: Slipway, kube: Kube) -> None:
    await stored(kube, **DECIDED)
    code, out, _ = await slipway("autoscale", "status", "digits/stable", "-o", "json")
    assert code == 0
    assert json.loads(out)["status"]["desiredReplicas"] == 3
    code, out, _ = await slipway("autoscale", "explain", "digits/stable")
    assert code == 0
    assert "digits-stable wants 3 replicas of deployment/digits-1, 2 ready" in out
    assert "That is 14.2 / 5 = 2.84 replicas" in out


async def test_explain_reports_an_autoscaler_without_a_decision(slipway: Slipway, kube: Kube) -> None:
    await stored(kube)
    code, out, _ = await slipway("autoscale", "explain", "digits-stable")
    assert code == 0
    assert "has not decided anything yet" in out


async def test_explain_of_a_missing_autoscaler_exits_with_3(slipway: Slipway) -> None:
    code, _, err = await slipway("autoscale", "explain", "nobody")
    assert code == 3
    assert "nobody" in err


async def test_watching_prints_a_line_at_each_change_until_it_is_interrupted(
    kube: Kube, api_server: DataDir
) -> None:
    autoscaler = await stored(kube, **DECIDED)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from serving.app import main; main()",
        "autoscale",
        "status",
        "-w",
        "--kubeconfig",
        str(api_server.kubeconfig),
        "-n",
        kube.namespace,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        first = (await process.stdout.readline()).decode()
        await kube.apply_status(kinds.AUTOSCALER, autoscaler, {**DECIDED, "desiredReplicas": 4})
        second = (await process.stdout.readline()).decode()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    assert "digits-stable: desired 3, ready 2" in first
    assert "digits-stable: desired 4, ready 2" in second


@contextlib.asynccontextmanager
async def gateway(rate: float) -> AsyncIterator[str]:
    """Serve a page whose counter grows by `rate` a second; yields its URL."""
    begun = time.monotonic()

    async def page(request: web.Request) -> web.Response:
        count = 1000 + round(rate * (time.monotonic() - begun))
        namespace = request.match_info["namespace"]
        labels = f'namespace="{namespace}",inference="digits",predictor="stable",revision="digits-1"'
        name = "slipway_requests_received_total"
        return web.Response(text=f"# TYPE {name} counter\n{name}{{{labels}}} {count}\n")

    app = web.Application()
    app.router.add_get("/{namespace}/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_recording_has_a_row_per_second_with_its_requests(
    slipway: Slipway, kube: Kube, tmp_path: Path
) -> None:
    await stored(kube)
    path = tmp_path / "digits.csv.gz"
    async with gateway(40) as url:
        page = f"{url}/{kube.namespace}/metrics"
        code, out, err = await slipway(
            "autoscale", "record", "digits/stable", "--out", str(path), "--duration", "4s", "--metrics", page
        )
    assert code == 0, err
    assert "4 s" in out
    rows = [line.split(",") for line in text(path).splitlines()[1:]]
    assert len(rows) == 4
    assert sum(float(count) for _, count in rows) == pytest.approx(160, rel=0.3)
    assert [int(after[0]) - int(before[0]) for before, after in itertools.pairwise(rows)] == [1, 1, 1]


async def test_an_interrupted_recording_has_complete_rows(
    kube: Kube, api_server: DataDir, tmp_path: Path
) -> None:
    await stored(kube)
    path = tmp_path / "digits.csv"
    async with gateway(40) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from serving.app import main; main()",
            "autoscale",
            "record",
            "digits-stable",
            "--out",
            str(path),
            "--metrics",
            f"{url}/{kube.namespace}/metrics",
            "--kubeconfig",
            str(api_server.kubeconfig),
            "-n",
            kube.namespace,
        )
        async with asyncio.timeout(40):
            while not path.exists() or len(path.read_text().splitlines()) < 3:
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    assert all(line.count(",") == 1 for line in path.read_text().splitlines())


async def test_a_recording_without_a_page_is_refused_and_creates_no_file(
    slipway: Slipway, kube: Kube, tmp_path: Path
) -> None:
    await stored(kube)
    path = tmp_path / "x.csv"
    code, _, err = await slipway(
        "autoscale", "record", "digits-stable", "--out", str(path), "--metrics", "http://127.0.0.1:9/metrics"
    )
    assert code == 1
    assert "no page of metrics answers" in err
    assert not path.exists()


def simulated(capsys: pytest.CaptureFixture[str], *arguments: str) -> Ended:
    with pytest.raises(SystemExit) as ended:
        main.run(["autoscale", "simulate", *arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return int(ended.value.code or 0), out, err


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "burst.csv"
    rates = simulations.trace().rates
    path.write_text(
        "\n".join(["second,requests", *(f"{10 * i},{10 * rate:g}" for i, rate in enumerate(rates))]) + "\n"
    )
    return path


def test_simulate_writes_a_page_and_its_json(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = simulated(
        capsys, "--trace", str(trace), "--policy", "hpa", "--startup", "20", "-o", "html"
    )
    assert code == 0, err
    assert out.splitlines() == ["wrote burst.html", "wrote burst.json"]
    report = json.loads((tmp_path / "burst.json").read_text())
    assert [row["name"] for row in report["rows"]] == ["perfect knowledge", "slipway", "hpa"]
    assert (tmp_path / "burst.html").read_text().startswith("<!doctype html>")
    assert not list(tmp_path.glob(".*"))


def test_simulate_prints_the_same_when_repeated_with_one_seed(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--trace", str(trace), "--policy", "hpa", "--min", "2", "--max", "6", "--seed", "3")
    first, second = simulated(capsys, *arguments), simulated(capsys, *arguments)
    assert first[:2] == second[:2]
    assert first[0] == 0
    assert "Between 2 and 6 replicas" in first[1]


def test_simulate_refuses_an_unknown_policy_with_the_known_policies(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = simulated(capsys, "--trace", str(trace), "--policy", "magic")
    assert code == 1
    assert "there is no policy magic; there are slipway, static, hpa, kpa" in err


def test_simulate_without_a_source_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = simulated(capsys)
    assert code == 1
    assert "--trace FILE, or --prometheus URL with --query PROMQL" in err
