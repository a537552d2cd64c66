"""The pages that a kubelet asks: whether a component's event loop runs, and whether it is ready for work.

The pages need no credentials, so they must reveal nothing else.
"""

from collections.abc import Mapping
from http import HTTPStatus

from serving.system.network.http_pages import PageAnswer, PageHandler
from serving.system.readiness import Readiness

LIVE = "/livez"
READY = "/readyz"
_OK = PageAnswer(b"ok\n")


def pages(readiness: Readiness) -> Mapping[str, PageHandler]:
    """Return the pages by path."""

    async def live() -> PageAnswer:
        return _OK

    async def ready() -> PageAnswer:
        obstacle = readiness.obstacle()
        return (
            PageAnswer(f"not ready: {obstacle}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
            if obstacle
            else _OK
        )

    return {LIVE: live, READY: ready}
