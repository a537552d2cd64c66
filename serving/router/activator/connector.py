"""Connects to replicas: by TCP, or by the Unix sockets of this machine's Pods."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.client_exceptions import UnixClientConnectorError
from aiohttp.client_proto import ResponseHandler

from serving.resources import names
from serving.router.plan.service import Endpoint
from serving.system.network import addresses, replica_connections

_UNIX = ".unix.invalid"
"""Suffix of the host in a URL that is reached by a Unix socket: `invalid` has no hosts (RFC 6761)."""


def host_of(replica: Endpoint) -> str:
    """Return `host:port` of a replica's URLs, from which `ReplicaConnector` recognises a Unix socket."""
    return addresses.authority(f"{replica.address}{_UNIX if replica.unix else ''}", replica.port)


class ReplicaConnector(aiohttp.TCPConnector):
    """Connects by TCP or, to a host with the suffix `_UNIX`, by the replica's Unix socket.

    aiohttp has a connector for each of the two, but a session takes only one connector.
    """

    def __init__(self, sockets: Path, **options: Any) -> None:
        """`sockets` is the folder of the Pods' Unix sockets; the options are those of the TCP connector."""
        super().__init__(socket_factory=replica_connections.new_socket, **options)
        self._sockets = sockets

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        host = req.url.host or ""
        if not host.endswith(_UNIX):
            return await super()._create_connection(req, traces, timeout)
        address = host.removesuffix(_UNIX)
        path = str(self._sockets / names.pod_socket_name(address, req.url.port or 0))
        try:
            async with asyncio.timeout(timeout.sock_connect):
                _, handler = await self._loop.create_unix_connection(self._factory, path)
        except TimeoutError:  # an OSError too, which aiohttp itself turns into ConnectionTimeoutError
            raise
        except OSError as error:
            raise UnixClientConnectorError(path, req.connection_key, error) from error
        return handler
