"""Brings a rendered plan to Envoy in the order that fails no request, and reads back that it was accepted.

New clusters before the routes that name them; routes before the clusters that they no longer name. Where the
routes need nothing that Envoy has not accepted already, both are written at once: a change of weights does
not wait for a churn of endpoints. What was rejected changes nothing: Envoy keeps its last good configuration.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from serving import clock, errors
from serving.router.admin import Admin
from serving.router.envoy import wire
from serving.router.envoy.render import File, Rendered, cluster_file, contents, route_file
from serving.router.envoy.routes import by_path
from serving.router.process import write_atomically
from serving.settings import GatewaySettings

log = logging.getLogger(__name__)

_LOG_TAIL_BYTES = 64 * 1024
_FILES = {"clusters": "clusters.pb", "public": "public.pb", "private": "private.pb"}
"""By this suffix Envoy knows what is in them."""


class Rejected(errors.SlipwayError):
    """Envoy refused an update; it goes on with the last good one."""


class Delivery:
    """The files of one Envoy."""

    def __init__(self, folder: Path, admin: Admin, settings: GatewaySettings, envoy_log: Path) -> None:
        self._folder = folder
        self._admin = admin
        self._settings = settings
        self._envoy_log = envoy_log
        self._wanted: dict[str, str] = {}
        self._clusters: dict[str, bytes] = {}
        self._serving: frozenset[str] = frozenset()
        self._rejections: dict[str, int] | None = None

    def paths(self) -> dict[str, str]:
        """Return the absolute paths that `bootstrap` names."""
        sockets = {"admin": "admin.sock", "probe": "probe.sock"}
        return {name: str(self._folder / leaf) for name, leaf in {**_FILES, **sockets}.items()}

    def prepare(self) -> None:
        """Make the files exist, and learn from them what an adopted Envoy has (Envoy refuses to start without)."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        empty = {
            "clusters": cluster_file({}),
            "public": route_file("public", [by_path([], "not configured yet")]),
            "private": route_file("private", [by_path([], "not configured yet")]),
        }
        for name, content in empty.items():
            path = self._folder / _FILES[name]
            try:
                self._wanted[name] = contents(path.read_bytes())[0]
            except (FileNotFoundError, ValueError):
                self._write(name, content)
        self._learn_clusters()

    async def apply(self, rendered: Rendered) -> None:
        """Bring Envoy to the plan; returns once it has accepted all of it.

        Raises:
            Rejected: Envoy refused it, with Envoy's own words.
        """
        kept = {
            name: piece
            for name, piece in self._clusters.items()
            if name not in rendered.clusters or (name in self._serving and name not in rendered.serving)
        }
        if rendered.routed <= self._serving:
            self._write_routes(rendered)
        await self._write_clusters({**rendered.clusters, **kept}, self._serving | rendered.serving)
        self._write_routes(rendered)
        await self._accepted()
        if kept:
            await self._write_clusters(rendered.clusters, rendered.serving)

    async def wait_ready(self, seconds: float) -> None:
        """Wait until Envoy listens.

        Raises:
            errors.Unavailable: it does not.
        """
        deadline = clock.monotonic() + seconds
        while True:
            try:
                if await self._admin.ready():
                    # What an adopted Envoy rejected before was somebody else's to report.
                    self._rejections = await self._admin.rejections()
                    return
            except errors.Unavailable:
                if clock.monotonic() > deadline:
                    raise
            if clock.monotonic() > deadline:
                raise errors.Unavailable(f"Envoy is not ready after {seconds} s: see {self._envoy_log}")
            await asyncio.sleep(0.01)

    def _write_routes(self, rendered: Rendered) -> None:
        self._write("public", rendered.public)
        self._write("private", rendered.private)

    async def _write_clusters(self, found: Mapping[str, bytes], serving: frozenset[str]) -> None:
        if self._write("clusters", cluster_file(found)):
            await self._accepted()
        self._clusters = dict(found)
        self._serving = serving & found.keys()

    def _write(self, name: str, content: File) -> bool:
        if self._wanted.get(name) == content.version:
            return False
        write_atomically(self._folder / _FILES[name], content.content)
        self._wanted[name] = content.version
        return True

    async def _accepted(self) -> None:
        """Wait until Envoy says that it has what is in the files; without Envoy, wait for the next one."""
        patience = clock.monotonic() + self._settings.accept_seconds
        while True:
            try:
                if await self._admin.versions() == self._wanted:
                    return
                if clock.monotonic() > patience:
                    await self._raise_if_rejected()
                    patience = clock.monotonic() + self._settings.accept_seconds
            except errors.Unavailable as error:
                log.info("waiting for Envoy: %s", error)
                self._rejections = None
                await asyncio.sleep(0.05)
            await asyncio.sleep(self._settings.accept_poll_seconds)

    async def _raise_if_rejected(self) -> None:
        seen = await self._admin.rejections()
        before, self._rejections = self._rejections or {}, seen
        worse = [name for name, count in seen.items() if count > before.get(name, 0)]
        if not worse:
            return
        for name in worse:  # so that the same content is written again when it is asked for again
            self._wanted.pop(name, None)
        raise Rejected(_last_complaint(self._envoy_log) or f"Envoy rejected the {', '.join(worse)}")

    def _learn_clusters(self) -> None:
        for resource in contents((self._folder / _FILES["clusters"]).read_bytes())[1]:
            cluster = wire.decode("Any", resource)
            self._clusters[cluster["name"]] = resource
            if "lb_endpoints" in cluster["load_assignment"]["endpoints"][0]:
                self._serving |= {cluster["name"]}


def _last_complaint(path: Path) -> str:
    """Return Envoy's last warning about a rejected update; only its log has the reason."""
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            text = handle.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    found = re.findall(r"(?:update rejected|update failed|Error adding/updating)[^\n]*", text)
    return found[-1][:500] if found else ""
