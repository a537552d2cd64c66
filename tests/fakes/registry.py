"""A registry in memory with features that distribution 2.8 lacks.

It resumes inside a chunk, lists referrers and requires large chunks (OCI distribution-spec 1.1). A test sets
faults before the requests that meet them.
"""

import asyncio
import hashlib
import json
import uuid
from dataclasses import dataclass, field

from aiohttp import web

HOLE = "0" * 64


@dataclass
class FakeRegistry:
    """Mount `app` anywhere."""

    chunk_min: int = 0
    page: int = 100
    """Referrers on one page."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    cut_patches: list[int] = field(default_factory=list)
    """The number of bytes of the body after which each of the next PATCHes loses its connection."""
    deaf: bool = False
    """Whether PATCHes are answered and their bytes discarded."""
    forgets: bool = False
    """Whether an upload is dropped when its connection is cut, as by distribution 2.8."""
    lose_answers: int = 0
    """The number of PUTs of blobs that are stored but whose response is lost."""
    statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Responses to the next requests of any kind, which then have no effect."""
    redirect_blobs_to: str = ""
    garble_blobs: int = 0
    """The number of GETs of blobs that are answered with as many other bytes."""
    log: list[tuple[str, str]] = field(default_factory=list)
    """Methods and paths."""
    authorizations: list[str | None] = field(default_factory=list)
    received: int = 0
    """Bytes of bodies of uploads."""

    @property
    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/v2/{repository:.+}/blobs/uploads/{id:.*}", self._uploads)
        app.router.add_route("*", "/v2/{repository:.+}/blobs/{digest}", self._blobs)
        app.router.add_route("*", "/v2/{repository:.+}/manifests/{name}", self._manifests)
        app.router.add_get("/v2/{repository:.+}/referrers/{digest}", self._referrers)
        return app

    def _scripted_answer(self, request: web.Request) -> web.Response | None:
        self.log.append((request.method, request.path))
        self.authorizations.append(request.headers.get("Authorization"))
        if self.statuses:
            status, headers = self.statuses.pop(0)
            return web.Response(status=status, headers=headers)
        return None

    async def _blobs(self, request: web.Request) -> web.StreamResponse:
        if (scripted := self._scripted_answer(request)) is not None:
            return scripted
        digest = request.match_info["digest"]
        if self.redirect_blobs_to and request.method == "GET":
            return web.Response(status=307, headers={"Location": f"{self.redirect_blobs_to}/{digest}"})
        if digest not in self.blobs:
            return web.Response(status=404)
        if self.garble_blobs and request.method == "GET":
            self.garble_blobs -= 1
            return web.Response(body=bytes(len(self.blobs[digest])))
        return web.Response(body=self.blobs[digest])

    async def _uploads(self, request: web.Request) -> web.StreamResponse:
        if (scripted := self._scripted_answer(request)) is not None:
            return scripted
        if request.method == "POST":
            name = uuid.uuid4().hex
            self.uploads[name] = bytearray()
            headers = self._location(name)
            if self.chunk_min:
                headers["OCI-Chunk-Min-Length"] = str(self.chunk_min)
            return web.Response(status=202, headers=headers)
        name = request.match_info["id"]
        upload = self.uploads.get(name)
        if upload is None:
            return web.Response(status=404)
        if request.method == "GET":
            return web.Response(status=204, headers=self._location(name))
        if request.method == "DELETE":
            del self.uploads[name]
            return web.Response(status=204)
        return await (self._patch if request.method == "PATCH" else self._put)(request, name, upload)

    def _location(self, name: str) -> dict[str, str]:
        # Relative or absolute, and new in each response, as the specification allows.
        upload = self.uploads[name]
        return {"Location": f"{name}?turn={len(self.log)}", "Range": f"0-{max(0, len(upload) - 1)}"} | (
            {} if len(self.log) % 2 else {"Location": f"/v2/x/blobs/uploads/{name}?turn={len(self.log)}"}
        )

    async def _patch(self, request: web.Request, name: str, upload: bytearray) -> web.StreamResponse:
        start = int(request.headers["Content-Range"].split("-")[0])
        if start != len(upload):
            return web.Response(status=416, headers=self._location(name))
        cut = self.cut_patches.pop(0) if self.cut_patches else None
        received = 0
        async for data in request.content.iter_any():
            accepted = data if cut is None else data[: cut - received]
            upload += accepted
            received += len(accepted)
            self.received += len(accepted)
            if self.forgets and cut is not None and received >= cut:
                del self.uploads[name]
            if cut is not None and received >= cut:
                assert request.transport is not None
                request.transport.abort()
                await asyncio.sleep(0)
                return web.Response(status=500)
        if self.chunk_min and received < self.chunk_min:
            return web.Response(status=416)
        if self.deaf:
            upload.clear()
        return web.Response(status=202, headers=self._location(name))

    async def _put(self, request: web.Request, name: str, upload: bytearray) -> web.StreamResponse:
        data = bytes(upload) + await request.read()
        self.received += len(data) - len(upload)
        digest = request.query["digest"]
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            return web.json_response({"errors": [{"code": "DIGEST_INVALID", "message": "no"}]}, status=400)
        del self.uploads[name]
        self.blobs[digest] = data
        if self.lose_answers:
            self.lose_answers -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=201)

    async def _manifests(self, request: web.Request) -> web.Response:
        if (scripted := self._scripted_answer(request)) is not None:
            return scripted
        name = request.match_info["name"]
        if request.method == "PUT":
            data = await request.read()
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            self.manifests[digest] = self.manifests[name] = data
            headers = {"Docker-Content-Digest": digest}
            if subject := json.loads(data).get("subject"):
                headers["OCI-Subject"] = subject["digest"]
            return web.Response(status=201, headers=headers)
        if name not in self.manifests:
            return web.Response(status=404)
        data = self.manifests[name]
        return web.Response(body=data, content_type=json.loads(data)["mediaType"])

    async def _referrers(self, request: web.Request) -> web.Response:
        if (scripted := self._scripted_answer(request)) is not None:
            return scripted
        digest = request.match_info["digest"]
        referrers = [
            {
                "mediaType": document["mediaType"],
                "digest": name,
                "size": len(data),
                "artifactType": document.get("artifactType"),
            }
            for name, data in self.manifests.items()
            if name.startswith("sha256:")
            and (document := json.loads(data)).get("subject", {}).get("digest") == digest
        ]
        start = int(request.query.get("from", "0"))
        headers = {}
        if start + self.page < len(referrers):
            headers["Link"] = f'<{request.path}?from={start + self.page}>; rel="next"'
        index = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": referrers[start : start + self.page],
        }
        return web.json_response(index, headers=headers)
