"""Responses with status 200 that are not the API's, as those of a proxy that asks for a login."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest

from serving import errors
from serving.kube import Informer, VersionReader, Watches, discovery, optional_informer, serves
from serving.kube.connection.client import Configuration, Kube
from serving.kube.election import LeaderElection, Timing
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import OptionalKind
from tests.rig.control_plane.convergence import running, until
from tests.rig.machine.tcp_server import tcp_server

PAGES = [b"<html>Log in</html>", b"[]", b"null", b"{}", b'"text"', b""]
LINES = [b"<html>Log in</html>\n", b"[]\n", b"null\n", b"{}\n", b'{"type": "ADDED"}\n']
RAY = OptionalKind("ray.io", ("v1",), "RayJob", "rayjobs")
POD = {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "1"}}


class Api:
    """An API with one Lease, behind a proxy that answers the next requests with `pages` instead."""

    def __init__(self) -> None:
        self.pages: list[bytes] = []
        self.lease: Object | None = None
        self.asked: list[str] = []
        self.documents: dict[str, Object] = {
            "/apis": {"groups": []},
            "/version": {"gitVersion": "v1.36.0"},
            "/api/v1/nodes": {"items": [], "metadata": {"resourceVersion": "1"}},
            "/api/v1/pods": {"items": [POD], "metadata": {"resourceVersion": "1"}},
            "/apis/policy/v1": {"resources": None},
        }

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split("\r\n", 1)[0].split(" ")
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            sent = await reader.readexactly(int(fields.get("content-length", "0")))
            self.asked.append(f"{method} {path}")
            status, body = ("200 OK", self.pages.pop(0)) if self.pages else self._own(method, path, sent)
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    def _own(self, method: str, path: str, sent: bytes) -> tuple[str, bytes]:
        path = path.partition("?")[0]
        if "/leases" not in path:
            return "200 OK", orjson.dumps(self.documents[path])
        if method != "GET":
            lease = orjson.loads(sent)
            self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(len(self.asked))}}
        if self.lease is None:
            return "404 Not Found", b'{"code": 404, "reason": "NotFound"}'
        return "200 OK", orjson.dumps(self.lease)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def kube(api: Api) -> AsyncIterator[Kube]:
    async with (
        tcp_server(api.answer) as port,
        Kube(Configuration(host=f"http://127.0.0.1:{port}"), field_manager="test") as client,
    ):
        yield client


async def watched(kube: Kube) -> Any:
    async with contextlib.aclosing(kube.watch(kinds.POD, None, "1")) as events:
        return await anext(events)


REQUESTS: dict[str, Callable[[Kube], Awaitable[Any]]] = {
    "get": lambda kube: kube.get(kinds.POD, "default", "a"),
    "list": lambda kube: kube.list(kinds.POD),
    "create": lambda kube: kube.create(kinds.POD, POD),
    "update": lambda kube: kube.update(kinds.POD, POD),
    "patch": lambda kube: kube.patch(kinds.POD, "default", "a", {}),
    "apply": lambda kube: kube.apply(kinds.POD, POD),
    "discovery": lambda kube: discovery.served(kube, [RAY]),
    "resources": lambda kube: discovery.resources(kube, "/apis/policy/v1"),
}


@pytest.mark.parametrize("page", PAGES, ids=str)
@pytest.mark.parametrize("name", REQUESTS)
async def test_request_is_unanswered_when_its_response_is_not_the_api_s(
    api: Api, kube: Kube, name: str, page: bytes
) -> None:
    api.pages = [page]
    with pytest.raises(errors.Unavailable, match="not one of the Kubernetes API"):
        await REQUESTS[name](kube)


@pytest.mark.parametrize("page", [b'{"metadata": {}}', b'{"metadata": {}, "items": [1]}'], ids=str)
async def test_list_is_unanswered_when_its_shape_is_another(api: Api, kube: Kube, page: bytes) -> None:
    api.pages = [page]
    with pytest.raises(errors.Unavailable, match="not one of the Kubernetes API"):
        await kube.list(kinds.POD)


@pytest.mark.parametrize("line", [*LINES, b"x" * 9 * 1024 * 1024], ids=lambda line: str(line[:20]))
async def test_watch_is_unanswered_when_a_line_is_not_the_api_s(api: Api, kube: Kube, line: bytes) -> None:
    api.pages = [line]
    with pytest.raises(errors.Unreadable):
        await watched(kube)


async def test_watch_yields_an_object_of_three_mebibytes(api: Api, kube: Kube) -> None:
    large = {**POD, "data": "x" * 3 * 1024 * 1024}
    api.pages = [orjson.dumps({"type": "ADDED", "object": large}) + b"\n"]
    assert (await watched(kube)).object == large


@pytest.mark.parametrize("page", PAGES, ids=str)
async def test_leader_stays_when_a_renewal_gets_a_page_of_a_proxy(api: Api, kube: Kube, page: bytes) -> None:
    api.pages = [page]
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    election = LeaderElection(kube, "default", "leader", "host", Timing(lease=3, renew=2.0, retry=0.01))
    async with running(election.run(work)) as (task,):
        await until(began.is_set)
        api.pages = [page]
        await until(lambda: not api.pages)
        before = len(api.asked)
        await until(lambda: len(api.asked) > before + 4)
        assert not task.done()


@pytest.mark.parametrize("page", PAGES, ids=str)
async def test_kinds_are_asked_for_again_when_the_response_is_a_page_of_a_proxy(
    api: Api, kube: Kube, page: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional_informer, "RETRY_SECONDS", 0.01)
    api.pages = [page]
    informer = Watches(kube).optional(RAY, lambda obj: obj)
    async with running(optional_informer.run(kube, [informer])):
        await until(lambda: bool(informer.obstacle))
    assert api.asked == ["GET /apis"] * 2


@pytest.mark.parametrize("page", PAGES, ids=str)
async def test_kind_is_asked_for_again_when_the_response_is_a_page_of_a_proxy(
    api: Api, kube: Kube, page: bytes
) -> None:
    api.pages = [page]
    assert not await serves(kube, kinds.POD_DISRUPTION_BUDGET)
    assert len(api.asked) == 2


@pytest.mark.parametrize("page", [*PAGES, b'{"metadata": {"resourceVersion": "x"}}'], ids=str)
async def test_objects_are_listed_again_when_the_list_is_a_page_of_a_proxy(
    api: Api, kube: Kube, page: bytes
) -> None:
    api.pages = [page]
    informer = Informer(kube, kinds.POD)
    async with running(informer.run()):
        await until(lambda: informer.get("default", "a") is not None)


BAD_EVENTS = [
    b"x" * 5 * 1024 * 1024,
    b'{"type": "ADDED", "object": []}',
    b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "x", "name": "b"}}}',
    b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "2", "name": []}}}',
    b'{"type": "DELETED", "object": {"metadata": {"resourceVersion": "2"}}}',
]


@pytest.mark.parametrize("event", BAD_EVENTS, ids=lambda event: str(event[:90]))
async def test_objects_are_listed_again_when_an_event_cannot_be_read(
    api: Api, kube: Kube, event: bytes
) -> None:
    """A watch at the same version would have the same event again."""
    informer = Informer(kube, kinds.POD)
    api.pages = [orjson.dumps(api.documents["/api/v1/pods"]), event + b"\n"]
    async with running(informer.run()) as (task,):
        await until(lambda: len(api.asked) >= 3)
        assert not task.done()
    assert ["watch=1" in request for request in api.asked[:3]] == [False, True, False]
    assert [key.name for key in informer.items] == ["a"]


async def test_objects_are_listed_again_when_one_of_the_list_has_no_name(api: Api, kube: Kube) -> None:
    api.pages = [orjson.dumps({**api.documents["/api/v1/pods"], "items": [{"metadata": {}}]})]
    informer = Informer(kube, kinds.POD)
    async with running(informer.run()):
        await until(lambda: informer.get("default", "a") is not None)


@pytest.mark.parametrize("page", [page for page in PAGES if page != b"{}"], ids=str)
async def test_versions_are_not_read_when_that_of_the_server_is_a_page_of_a_proxy(
    api: Api, kube: Kube, page: bytes
) -> None:
    reader = VersionReader(kube)
    api.pages = [orjson.dumps(api.documents["/api/v1/nodes"]), page]
    with pytest.raises(errors.Unavailable):
        await reader.read()
    assert (await reader.read()).server == "v1.36.0"
