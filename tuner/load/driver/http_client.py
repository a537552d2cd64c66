"""Asks one request and records how it went.

The client is the one of locust's FastHttpUser, without the session around it: cookies, redirects and statistics cost as much as the
request itself, and a model server has none of them.
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
"""Bytes of an answer that are held at once; an endless one fills no memory."""
_SAID = 160
"""Bytes of the answer of a failed request that are kept, to say why."""

_poll = monkey.get_original("select", "poll")


def _readable(sockets: Sequence[Any], *_: object) -> tuple[list[Any], list[Any], list[Any]]:
    """Say which of some sockets can be read, as `select.select` does, now.

    The pool of connections asks it before each request whether the peer has hung up. gevent's own gives the turn to all others
    first, so that a request would be sent late, and fails for files beyond the 1024th, so that it would never reuse a connection.
    """
    asked = _poll()
    for one in sockets:
        asked.register(one.fileno(), 1)  # POLLIN
    return (list(sockets) if asked.poll(0) else []), [], []


vars(connectionpool)["select"] = types.SimpleNamespace(select=_readable)


class RecordingClient:
    """One target, one recorder; used by many greenlets at once."""

    def __init__(self, url: str, recorder: LatencyLog, *, timeout: float, connections: int) -> None:
        """Connect to nothing yet.

        Args:
            url: of the target; its path is not used.
            recorder: is told of every request.
            timeout: seconds until a request is given up, connecting included.
            connections: that may be open at once.
        """
        self._client = HTTPClient.from_url(
            url, concurrency=connections, network_timeout=timeout, connection_timeout=timeout
        )
        self._recorder = recorder
        self._timeout = timeout

    def ask(self, request: LoadRequest, intended: float | None = None) -> None:
        """Send a request now and wait for its whole answer, which is recorded."""
        begun = time.monotonic()
        intended = begun if intended is None else intended
        key = self._recorder.begins(intended)
        tokens = TokenStream() if request.stream else None
        error = "stopped"
        try:
            with gevent.Timeout(max(0.001, intended + self._timeout - begun), TimeoutError):
                error = self._answered(request, tokens)
        except TimeoutError:
            error = f"no answer within {self._timeout:g} s"
        except Exception as failure:  # noqa: BLE001 whatever a hostile server makes the client raise is a failed request
            error = f"{type(failure).__name__}: {failure}"
        finally:
            moments = tokens.moments if tokens else []
            self._recorder.ends(
                key,
                done=time.monotonic(),
                behind=begun - intended,
                error=error,
                tokens=tokens.count if tokens else 0,
                ttft=moments[0] - intended if moments else -1.0,
                gaps=tokens.gaps() if tokens else None,
            )

    def _answered(self, request: LoadRequest, tokens: TokenStream | None) -> str:
        """Return what was wrong with the answer; nothing where it was right."""
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
        said = " ".join(bytes(first[:_SAID]).decode(errors="replace").split())
        return f"status {code}: {said}" if said else f"status {code}"
