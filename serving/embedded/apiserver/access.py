"""Access by a bearer token, which only the owner of the data directory can read."""

import base64
import secrets
from pathlib import Path

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving import errors
from serving.data_dir import DataDir
from serving.embedded.apiserver.status_errors import to_status
from serving.system.files import atomic_file, run_files
from serving.system.network import addresses

OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
"""Paths that need no token; their responses are only `ok`."""


def token(path: Path) -> str:
    """Return the token; create one at the first start."""
    try:
        if stored := path.read_text().strip():
            path.chmod(0o600)
            return stored
    except FileNotFoundError:
        pass
    created = secrets.token_urlsafe(32)
    atomic_file.replace(path, created.encode(), mode=0o600, synced=True)
    return created


def write_kubeconfig(data_dir: DataDir, *, host: str, port: int, ca: bytes, secret: str) -> None:
    """Write the kubeconfig by which clients find and trust the server; retry while the disk is full."""
    cluster = {
        "server": f"https://{addresses.authority(host, port)}",
        "certificate-authority-data": base64.b64encode(ca).decode(),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "slipway",
        "clusters": [{"name": "slipway", "cluster": cluster}],
        "users": [{"name": "slipway", "user": {"token": secret}}],
        "contexts": [
            {"name": "slipway", "context": {"cluster": "slipway", "user": "slipway", "namespace": "default"}}
        ],
    }
    content = orjson.dumps(config, option=orjson.OPT_INDENT_2)
    run_files.write(data_dir.kubeconfig, content, mode=0o600, synced=True)


class TokenGate:
    """Middleware that answers requests without the token with 401, except for the health checks.

    After a response to a request without the token the connection is closed, so that strangers hold no idle
    connections.
    """

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app = app
        self._secret = secret.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            authorization = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            scheme, _, token = authorization.partition(b" ")
            # The name of the scheme has any case (RFC 9110 section 11.1): a Pod's client sends "bearer".
            if scheme.lower() != b"bearer" or not secrets.compare_digest(token, self._secret):
                if scope["path"] in OPEN_PATHS:
                    await self._app(scope, receive, _closing(send))
                else:
                    await _refuse(_closing(send))
                return
        await self._app(scope, receive, send)


def _closing(send: Send) -> Send:
    """Return a `send` that closes the connection after the response."""

    async def close_after(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)

    return close_after


async def _refuse(send: Send) -> None:
    body = orjson.dumps(to_status(errors.Forbidden(401, "Unauthorized", "Unauthorized")))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
