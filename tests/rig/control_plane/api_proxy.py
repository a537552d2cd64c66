"""A proxy between components and an API server; subclasses record, refuse or delay requests.

async with ApiProxy(kubeconfig, ADDRESS) as proxy:
    proxy.write_kubeconfig(path, token)      # for a component
"""

import json
import ssl
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

from serving.kube.connection import kubeconfig as kube_config
from serving.kube.connection.kubernetes_aio import Configuration
from tests.rig.machine.ports import free_port

_HOP = {"host", "connection", "transfer-encoding", "content-length", "content-encoding"}
"""Headers of one connection; the body is handed on without its encoding."""


class ApiProxy:
    """Forwards each request with its own token."""

    def __init__(self, kubeconfig: Path, host: str) -> None:
        """Forward to the API server of `kubeconfig`; listen on the address `host`."""
        self._kubeconfig = kubeconfig
        self.host, self.port = host, free_port(host)

    async def __aenter__(self) -> Self:
        server = Configuration()
        await kube_config.load(server, self._kubeconfig)
        self._server = server.host.rstrip("/")
        trusted = ssl.create_default_context(cadata=server.ca_cert_data)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        application = web.Application(client_max_size=16 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=1, handler_cancellation=True
        )
        await self._runner.setup()
        await self._listen()
        return self

    async def _listen(self) -> None:
        self._site = web.TCPSite(self._runner, self.host, self.port)
        await self._site.start()

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def write_kubeconfig(self, path: Path, token: str) -> None:
        """Write a kubeconfig of this proxy for the account of `token`."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://{self.host}:{self.port}"}}],
            "users": [{"name": "c", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        path.write_text(json.dumps(content))

    def refusal(self, request: web.Request) -> web.Response | None:
        """Return the answer to a request that is not forwarded; None forwards it."""

    def answered(self, request: web.Request, body: bytes, status: int) -> None:
        """Get a forwarded request and the status of its answer, before the client gets the answer."""

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        refusal = self.refusal(request)
        return refusal if refusal is not None else await self._forward(request, body)

    async def _forward(self, request: web.Request, body: bytes) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        url = URL(self._server + request.raw_path, encoded=True)
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers
            ) as answer:
                self.answered(request, body, answer.status)
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await response.write(data)
        except (aiohttp.ClientError, ConnectionError):
            raise web.HTTPBadGateway from None
        return response
