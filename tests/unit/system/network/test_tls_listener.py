"""A TLS listener that cannot accept says so: its process would serve nobody, and answer the supervisor."""

import asyncio
import socket
import ssl

from serving.system.network.tls_listener import TlsListener


async def test_socket_that_does_not_listen_ends_the_server() -> None:
    failed = asyncio.Event()
    with socket.socket() as closed:
        closed.setblocking(False)  # noqa: FBT003 the socket module's own signature
        listener = TlsListener(closed, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), asyncio.Protocol, failed.set)
        await asyncio.wait_for(failed.wait(), 5)
        listener.close()
        await listener.wait_closed()


async def test_close_is_no_failure() -> None:
    failed = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)  # noqa: FBT003 the socket module's own signature
        listener = TlsListener(
            listening, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), asyncio.Protocol, failed.set
        )
        await asyncio.sleep(0)
        listener.close()
        await listener.wait_closed()
    assert not failed.is_set()
