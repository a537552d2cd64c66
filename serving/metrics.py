"""How a component lets Prometheus read what it counts: over HTTP on loopback, at a port that it writes down."""

import contextlib
import errno
from pathlib import Path

import orjson
from prometheus_client import CollectorRegistry, start_http_server

HOST = "127.0.0.1"


def serve(registry: CollectorRegistry, note: Path, port: int) -> int:
    """Answer `GET /metrics` in threads of this process; returns the port.

    Args:
        registry: what is counted.
        note: a JSON file that says the port; the one that was used last is taken again.
        port: TCP; 0 is any.

    Raises:
        OSError: the port that was asked for is another's.
    """
    last = port
    if not port:
        with contextlib.suppress(OSError, orjson.JSONDecodeError, KeyError):
            last = int(orjson.loads(note.read_bytes())["port"])
    try:
        server, _ = start_http_server(last, HOST, registry)
    except OSError as error:
        if port or error.errno != errno.EADDRINUSE:
            raise
        server, _ = start_http_server(0, HOST, registry)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(orjson.dumps({"port": server.server_port}))
    return int(server.server_port)
