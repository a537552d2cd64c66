"""`slipway logs -f` of many Pods, against an API whose logs begin when all of them are followed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from tests.rig.command_line import Slipway, command_line

PODS = 20


@pytest.fixture
async def slipway(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Slipway]:
    all_followed = asyncio.Barrier(PODS)
    labels = {"app": "web"}

    async def deployment(_request: web.Request) -> web.Response:
        spec = {"selector": {"matchLabels": labels}}
        return web.json_response({"metadata": {"name": "web", "namespace": "default"}, "spec": spec})

    async def pods(request: web.Request) -> web.Response:
        assert request.query["labelSelector"] == "app=web"
        items = [
            {
                "metadata": {"name": f"web-{number}", "namespace": "default", "labels": labels},
                "spec": {"containers": [{"name": "main"}]},
            }
            for number in range(PODS)
        ]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def log(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await all_followed.wait()
        await response.write(b"followed\n")
        return response

    app = web.Application()
    app.router.add_get("/apis/apps/v1/namespaces/default/deployments/web", deployment)
    app.router.add_get("/api/v1/namespaces/default/pods", pods)
    app.router.add_get("/api/v1/namespaces/default/pods/{name}/log", log)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = tmp_path / "kubeconfig"
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "c",
    }
    kubeconfig.write_text(yaml.safe_dump(config))
    yield command_line(kubeconfig, "default", capsys)
    await runner.cleanup()


async def test_all_pods_of_a_deployment_are_followed_at_once(slipway: Slipway) -> None:
    async with asyncio.timeout(20):
        code, out, _ = await slipway("logs", "-f", "deployment/web")
    assert code == 0
    assert sorted(out.splitlines()) == sorted(f"[web-{number}] followed" for number in range(PODS))


async def test_more_pods_than_are_to_be_followed_are_refused_with_their_number(slipway: Slipway) -> None:
    code, out, err = await slipway("logs", "-f", "deployment/web", "--max-log-requests", str(PODS - 1))
    assert (code, out) == (1, "")
    assert err.startswith(f"error: deployment/web has {PODS} Pods, and -f follows at most {PODS - 1}")
