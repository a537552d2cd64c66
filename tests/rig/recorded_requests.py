"""Requests of accounts to an API server, as RBAC sees them, recorded by a proxy between both.

    async with RecordingProxy(kubeconfig, ADDRESS) as proxy:
        proxy.write_kubeconfig(path, account, token)      # for a component that works as the account
    proxy.requests

An API server's audit log has the same, but only its administrator turns it on.
"""

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import orjson
from aiohttp import web
from yarl import URL

from serving.kube import kubeconfig as kube_config
from serving.kube.client import APPLY_PATCH
from serving.kube.kubernetes_aio import Configuration
from tests.rig.ports import free_port

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_HOP = {"host", "connection", "transfer-encoding", "content-length", "content-encoding"}
"""Headers of one connection; the body is handed on without its encoding."""


class Request(NamedTuple):
    """One request, or one right that the API server checks for it."""

    account: str
    namespace: str
    """Empty for the whole cluster."""
    group: str
    resource: str
    """With its subresource, as `routes/status`."""
    verb: str
    name: str
    """Empty where the request names no object, as for `create`."""
    is_allowed: bool


class RecordingProxy:
    """Forwards requests with the token of an account, and keeps them with the API server's verdict."""

    def __init__(self, kubeconfig: Path, host: str) -> None:
        """Forward to the API server of `kubeconfig`; listen on the address `host`."""
        self._kubeconfig = kubeconfig
        self.host, self.port = host, free_port(host)
        self.requests: set[Request] = set()
        self._accounts: dict[str, str] = {}
        """By the header Authorization."""

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
        application.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=1, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def write_kubeconfig(self, path: Path, account: str, token: str) -> None:
        """Write a kubeconfig with which a component works as the account of `token`."""
        self._accounts[f"Bearer {token}"] = account
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://{self.host}:{self.port}"}}],
            "users": [{"name": "c", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        path.write_text(json.dumps(content))

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        account = self._accounts[request.headers["Authorization"]]
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        url = URL(self._server + request.raw_path, encoded=True)
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers
            ) as answer:
                self.requests |= set(_rights(account, request, body, answer.status))
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for data in answer.content.iter_any():
                    await response.write(data)
        except (aiohttp.ClientError, ConnectionError):
            raise web.HTTPBadGateway from None
        return response


def _rights(account: str, request: web.Request, body: bytes, status: int) -> Iterator[Request]:
    """Yield the rights that a request of a resource needs; none for discovery, which all users may read."""
    words = request.path.strip("/").split("/")
    prefix = 2 if words[0] == "api" else 3
    if words[0] not in ("api", "apis") or len(words) <= prefix:
        return
    group, rest, namespace = "" if prefix == 2 else words[1], words[prefix:], ""
    if rest[0] == "namespaces" and len(rest) > 1:  # a Namespace is in itself
        namespace, rest = rest[1], rest[2:] or rest
    resource, name = "/".join([rest[0], *rest[2:3]]), rest[1] if len(rest) > 1 else ""
    verb = _VERBS.get(request.method) or ("get" if name else "watch" if "watch" in request.query else "list")
    is_allowed = status != 403
    yield Request(account, namespace, group, resource, verb, name, is_allowed)
    if verb == "patch" and request.content_type == APPLY_PATCH and status == 201:
        yield Request(account, namespace, group, resource, "create", name, is_allowed)
    if body and verb in ("create", "patch", "update"):
        yield from _of_owners(account, namespace, orjson.loads(body), is_allowed=is_allowed)


def _of_owners(account: str, namespace: str, body: Any, *, is_allowed: bool) -> Iterator[Request]:
    """Yield what OwnerReferencesPermissionEnforcement asks for: to update the finalizers of each owner whose
    deletion waits for the object.
    """
    metadata = body.get("metadata") or {} if isinstance(body, dict) else {}
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("blockOwnerDeletion"):
            group = owner["apiVersion"].rpartition("/")[0]
            resource = f"{owner['kind'].lower()}s/finalizers"
            yield Request(account, namespace, group, resource, "update", owner["name"], is_allowed)


async def source_address(kubeconfig: Path) -> str:
    """Return this machine's address on the way to the API server, which nodes may reach."""
    server = Configuration()
    await kube_config.load(server, kubeconfig)
    host, _, port = server.host.partition("//")[2].rstrip("/").rpartition(":")
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=(host.strip("[]"), int(port))
    )
    address: str = transport.get_extra_info("sockname")[0]
    transport.close()
    return address
