"""An HTTP client that records every request.

It is the client of locust's FastHttpUser without its session: cookies, redirects and statistics cost as much
as the request itself, and a model server has none of them.
"""

import time
import types
from collections.abc import Sequence
from typing import Any

import gevent
from gevent import monkey
from geventhttpclient import connectionpool
from geventhttpclient.client import HTTPClient

from tuner.load.driver.latency_log import LatencyLog
from tuner.load.driver.token_stream import TokenStream
from tuner.load.plan import LoadRequest

_CHUNK = 65_536
"""Bytes of a response in memory at once, as it may be endless."""
_ERROR_BYTES = 160
"""Bytes of a failed request's response to keep for the error."""

_poll = monkey.get_original("select", "poll")


def _readable(sockets: Sequence[Any], *_: object) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the sockets, of which the connection pool passes one, if one is readable now; else none.

    It replaces `select.select` in the connection pool, which calls it before each request to detect a closed
    connection. gevent's `select` would first yield to all other greenlets, which delays requests, and fails
    for descriptors above 1023.
    """
    poll = _poll()
    for socket in sockets:
        poll.register(socket.fileno(), 1)  # POLLIN
    return (list(sockets) if poll.poll(0) else []), [], []


vars(connectionpool)["select"] = types.SimpleNamespace(select=_readable)


class RecordingClient:
    """A client of one target with one log, for many greenlets at once."""

    def __init__(self, url: str, log: LatencyLog, *, timeout: float, connections: int) -> None:
        """Make a client without connections.

        Args:
            url: of the target; its path is ignored.
            log: of all requests.
            timeout: seconds of a request, connecting included.
            connections: most open connections.
        """
        self._client = HTTPClient.from_url(
            url, concurrency=connections, network_timeout=timeout, connection_timeout=timeout
        )
        self._log = log
        self._timeout = timeout

    def send(self, request: LoadRequest, intended: float | None = None) -> None:
        """Send a request now, wait for its complete response, and record it.

        `intended` is its scheduled time in seconds on the monotonic clock, from which latency and timeout
        count; None is now.
        """
        begun = time.monotonic()
        intended = begun if intended is None else intended
        key = self._log.begins(intended, stream=request.stream)
        tokens = TokenStream(lambda: self._log.speaks(key)) if request.stream else None
        error = "stopped"  # remains if locust kills this greenlet
        try:
            with gevent.Timeout(max(0.001, intended + self._timeout - begun), TimeoutError):
                error = self._response_error(request, tokens)
        except TimeoutError:
            error = f"no answer within {self._timeout:g} s"
        except Exception as failure:  # noqa: BLE001 the client may raise any error
            error = f"{type(failure).__name__}: {failure}"
        finally:
            moments = tokens.moments if tokens else []
            self._log.ends(
                key,
                done=time.monotonic(),
                behind=begun - intended,
                error=error,
                tokens=tokens.count if tokens else 0,
                prompt_tokens=tokens.prompt_tokens if tokens else 0,
                ttft=moments[0] - intended if moments else -1.0,
                gaps=tokens.gaps() if tokens else None,
            )

    def _response_error(self, request: LoadRequest, tokens: TokenStream | None) -> str:
        """Return the error of the response; empty if it has none."""
        response = self._client.request(request.method, request.path, request.body or None, request.headers)
        if tokens is not None and response.get_code() == 200:
            while line := response.readline(b"\n"):
                tokens.read(line, time.monotonic())
            if not tokens.finished and not tokens.error:
                tokens.error = "the stream broke off"
            return tokens.error
        first = response.read(_CHUNK)
        while response.read(_CHUNK):
            pass
        code = int(response.get_code())
        if 200 <= code < 300:
            return ""
        text = " ".join(bytes(first[:_ERROR_BYTES]).decode(errors="replace").split())
        return f"status {code}: {text}" if text else f"status {code}"
