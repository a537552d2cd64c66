"""`slipway get -w` against the real API."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import pytest

from serving.data_dir import DataDir
from serving.kube import Kube
from serving.resources import kinds

pytestmark = pytest.mark.timeout(60)
LINE_SECONDS = 20


@pytest.fixture
async def arms(kube: Kube) -> None:
    predictors = [
        {"name": "stable", "modelVersion": "v1", "trafficWeight": 90},
        {"name": "canary", "modelVersion": "v2", "trafficWeight": 10},
    ]
    await kube.create(
        kinds.INFERENCE,
        {"metadata": {"name": "digits"}, "spec": {"framework": "sklearn", "predictors": predictors}},
    )


@contextlib.asynccontextmanager
async def watching(kube: Kube, api_server: DataDir, *arguments: str) -> AsyncIterator[asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "serving.app",
        *("get", "-w", *arguments, "--kubeconfig", str(api_server.kubeconfig), "-n", kube.namespace),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LINE_SECONDS):
            yield process.stdout
    finally:
        process.kill()
        await process.wait()


async def line(stream: asyncio.StreamReader) -> str:
    return (await stream.readline()).decode().rstrip("\n")


async def weigh(kube: Kube, weight: int) -> None:
    patch = [{"op": "replace", "path": "/spec/predictors/1/trafficWeight", "value": weight}]
    await kube.patch(
        kinds.INFERENCE, kube.namespace, "digits", patch, content_type="application/json-patch+json"
    )


async def test_the_overview_of_arms_keeps_its_columns_and_prints_the_arms_that_change(
    kube: Kube, api_server: DataDir, arms: None
) -> None:
    async with watching(kube, api_server) as stream:
        headers, stable, canary = [await line(stream) for _ in range(3)]
        assert headers.split()[:5] == ["NAME", "READY", "ARM", "VERSION", "WEIGHT"]
        assert (stable.split()[2], canary.split()[2:5]) == ("stable", ["canary", "v2", "10"])
        await weigh(kube, 30)
        changed = await line(stream)
        assert changed.split()[2:5] == ["canary", "v2", "30"]
        assert changed.index("v2") == headers.index("VERSION")
        await kube.delete(kinds.INFERENCE, kube.namespace, "digits")
        assert ["Deleted" in await line(stream) for _ in range(2)] == [True, True]


async def test_a_kind_has_a_row_for_each_change_and_for_a_deletion_its_last_row(
    kube: Kube, api_server: DataDir, arms: None
) -> None:
    async with watching(kube, api_server, "inf") as stream:
        headers, first = await line(stream), await line(stream)
        await weigh(kube, 30)
        changed = await line(stream)
        await kube.delete(kinds.INFERENCE, kube.namespace, "digits")
        deleted = await line(stream)
    assert headers.split()[:2] == ["NAME", "READY"]
    assert [row.split()[0] for row in (first, changed, deleted)] == ["digits"] * 3


async def test_columns_of_ones_own_have_one_header_and_a_row_for_each_change(
    kube: Kube, api_server: DataDir, arms: None
) -> None:
    columns = "Name:.metadata.name,W:.spec.predictors[*].trafficWeight"
    async with watching(kube, api_server, "inf", "digits", "-o", f"custom-columns={columns}") as stream:
        assert [(await line(stream)).split() for _ in range(2)] == [["Name", "W"], ["digits", "90,10"]]
        await weigh(kube, 30)
        assert (await line(stream)).split() == ["digits", "90,30"]


async def test_a_template_is_printed_for_each_change(kube: Kube, api_server: DataDir, arms: None) -> None:
    template = r'{.spec.predictors[1].trafficWeight}{"\n"}'
    async with watching(kube, api_server, "inf", "-o", f"jsonpath={template}") as stream:
        assert await line(stream) == "10"
        await weigh(kube, 30)
        assert await line(stream) == "30"
