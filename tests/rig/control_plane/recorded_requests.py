"""Requests of accounts to an API server, as RBAC sees them, recorded by a proxy between both.

    async with RecordingProxy(kubeconfig, ADDRESS) as proxy:
        proxy.write_kubeconfig_of(path, account, token)      # for a component that works as the account
    proxy.requests

An API server's audit log has the same, but only its administrator turns it on.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from serving.kube.connection import kubeconfig as kube_config
from serving.kube.connection.kubernetes_aio import Configuration
from serving.resources.kubernetes.patch_types import APPLY_PATCH
from tests.rig.control_plane.api_proxy import ApiProxy

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RecordedRequest(NamedTuple):
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


class RecordingProxy(ApiProxy):
    """Forwards requests with the token of an account, and keeps them with the API server's verdict."""

    def __init__(self, kubeconfig: Path, host: str) -> None:
        """Forward to the API server of `kubeconfig`; listen on the address `host`."""
        super().__init__(kubeconfig, host)
        self.requests: set[RecordedRequest] = set()
        self._accounts: dict[str, str] = {}
        """By the header Authorization."""

    def write_kubeconfig_of(self, path: Path, account: str, token: str) -> None:
        """Write a kubeconfig with which a component works as the account of `token`."""
        self._accounts[f"Bearer {token}"] = account
        self.write_kubeconfig(path, token)

    def answered(self, request: web.Request, body: bytes, status: int) -> None:
        """Record the rights that the request needs."""
        account = self._accounts[request.headers["Authorization"]]
        self.requests |= set(_rights(account, request, body, status))


def _rights(account: str, request: web.Request, body: bytes, status: int) -> Iterator[RecordedRequest]:
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
    yield RecordedRequest(account, namespace, group, resource, verb, name, is_allowed)
    if verb == "patch" and request.content_type == APPLY_PATCH and status == 201:
        yield RecordedRequest(account, namespace, group, resource, "create", name, is_allowed)
    if body and verb in ("create", "patch", "update"):
        yield from _of_owners(account, namespace, orjson.loads(body), is_allowed=is_allowed)


def _of_owners(account: str, namespace: str, body: Any, *, is_allowed: bool) -> Iterator[RecordedRequest]:
    """Yield what OwnerReferencesPermissionEnforcement asks for: to update the finalizers of each owner whose
    deletion waits for the object.
    """
    metadata = body.get("metadata") or {} if isinstance(body, dict) else {}
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("blockOwnerDeletion"):
            group = owner["apiVersion"].rpartition("/")[0]
            resource = f"{owner['kind'].lower()}s/finalizers"
            yield RecordedRequest(account, namespace, group, resource, "update", owner["name"], is_allowed)


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
