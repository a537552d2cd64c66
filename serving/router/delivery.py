"""Brings a rendered plan to Envoy in the order that fails no request, and reads back that it was accepted.

What may be written when is decided in `envoy.order`. Here are the files, and what Envoy says of them. The aim may
change at any moment: what can be written is written at once, and only what must wait for Envoy does. What was
rejected changes nothing: Envoy keeps its last good configuration.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from serving import clock, errors
from serving.router.admin import Admin
from serving.router.envoy import order, weights, wire
from serving.router.envoy.order import Clusters, Held
from serving.router.envoy.render import File, Rendered, cluster_file, contents, route_file, weights_file
from serving.router.envoy.weights import Weights
from serving.router.process import write_atomically
from serving.settings import GatewaySettings

log = logging.getLogger(__name__)

_LOG_TAIL_BYTES = 64 * 1024
_FILES = {"clusters": "clusters.pb", "weights": "weights.pb", "public": "public.pb", "private": "private.pb"}
"""By this suffix Envoy knows what is in them."""
_POLL_SHARE = 4
"""Asking for versions costs Envoy's main thread 2 ms at 500 services and 10 ms at 2,000, which is the thread that
reads the files: at most a quarter of its time goes to answers."""


class Rejected(errors.SlipwayError):
    """Envoy refused an update; it goes on with the last good one."""


class Delivery:
    """The files of one Envoy."""

    def __init__(self, folder: Path, admin: Admin, settings: GatewaySettings, envoy_log: Path) -> None:
        self._folder = folder
        self._admin = admin
        self._settings = settings
        self._envoy_log = envoy_log
        self._target: Rendered | None = None
        self._written: dict[str, str] = {}
        self._writes = dict.fromkeys(_FILES, 0)
        self._since: dict[str, float] = {}
        self._seen: dict[str, str] = {}
        self._clusters = order.NOTHING
        self._accepted = order.NOTHING
        self._weights: Mapping[str, Weights] = {}
        self._weights_accepted: Mapping[str, Weights] = {}
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
            "weights": weights_file({}),
            "public": route_file("public", b"", "not configured yet"),
            "private": route_file("private", b"", "not configured yet"),
        }
        for name, content in empty.items():
            try:
                version, resources = contents((self._folder / _FILES[name]).read_bytes())
                if name == "clusters":
                    self._clusters = _clusters_of(resources)
                if name == "weights":
                    self._weights = weights.read(resources[0])
                self._written[name] = version
            except (FileNotFoundError, ValueError):
                self._write(name, content)

    def aim(self, rendered: Rendered) -> None:
        """Change what Envoy is to have; writes what need not wait. `confirm` does the rest."""
        self._target = rendered
        self._advance(rendered)

    async def confirm(self, seen: Callable[[], None] = lambda: None) -> None:
        """Have Envoy accept all of the aim, whatever it becomes meanwhile; without Envoy, wait for the next one.

        Args:
            seen: called whenever Envoy was asked; then `serves` may have changed its answer.

        Raises:
            Rejected: Envoy refused something, with Envoy's own words.
        """
        while self._target is not None:
            asked, writes = clock.monotonic(), dict(self._writes)
            try:
                versions = await self._admin.versions()
                self._learn(
                    {name: found for name, found in versions.items() if self._writes[name] == writes[name]}
                )
                seen()
                self._advance(self._target)
                if self._settled(self._target):
                    return
                await self._raise_if_rejected()
            except errors.Unavailable as error:
                log.info("waiting for Envoy: %s", error)
                self._rejections = None
                await asyncio.sleep(0.05)
            took = clock.monotonic() - asked
            await asyncio.sleep(max(self._settings.accept_poll_seconds, took * _POLL_SHARE))

    async def apply(self, rendered: Rendered) -> None:
        """Bring Envoy to the plan; returns once it has accepted all of it.

        Raises:
            Rejected: Envoy refused it.
        """
        self.aim(rendered)
        await self.confirm()

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
                    self._learn(await self._admin.versions())
                    return
            except errors.Unavailable:
                if clock.monotonic() > deadline:
                    raise
            if clock.monotonic() > deadline:
                raise errors.Unavailable(f"Envoy is not ready after {seconds} s: see {self._envoy_log}")
            await asyncio.sleep(0.01)

    def serves(self, rendered: Rendered) -> bool:
        """Say whether Envoy had these routes and weights when it was asked last."""
        return (
            self._seen.get("public") == rendered.public.version
            and self._seen.get("private") == rendered.private.version
            and rendered.weights.items() <= self._weights_accepted.items()
        )

    def _advance(self, target: Rendered) -> None:
        """Write what may be written now: weights and routes as soon as Envoy has what they need.

        Only one file of clusters is on its way at a time, because it takes Envoy the longest.
        """
        routed = self._routed(target)
        held = Held(self._clusters, self._accepted, self._weights, self._weights_accepted)
        shares = order.weights_for(target, held, routed=routed)
        if shares != self._weights or "weights" not in self._written:
            self._weights = shares
            self._write("weights", weights_file(shares))
        if order.may_route(target, replace(held, weights_written=shares)):
            self._write("public", target.public)
            self._write("private", target.private)
        if "clusters" in self._since:
            return
        wanted = order.clusters_for(target, self._clusters, routed=routed)
        if wanted.pieces != self._clusters.pieces or "clusters" not in self._written:
            self._write("clusters", cluster_file(wanted.pieces))
            self._clusters = wanted

    def _write(self, name: str, content: File) -> None:
        if self._written.get(name) == content.version:
            return
        write_atomically(self._folder / _FILES[name], content.content)
        self._written[name] = content.version
        self._writes[name] += 1
        self._seen.pop(name, None)  # Envoy may have another version by the time it is asked again
        self._since.setdefault(name, clock.monotonic())

    def _learn(self, versions: Mapping[str, str]) -> None:
        """Take note of what Envoy said of files that were not written since it was asked."""
        self._seen = dict(versions)
        for name, version in self._written.items():
            if versions.get(name) == version:
                self._since.pop(name, None)
            else:
                self._since.setdefault(name, clock.monotonic())
        if versions.get("clusters") == self._written.get("clusters"):
            self._accepted = self._clusters
        if versions.get("weights") == self._written.get("weights"):
            self._weights_accepted = self._weights

    def _routed(self, target: Rendered) -> bool:
        """Say whether Envoy has the target's routes and weights, and nothing older can come."""
        return self.serves(target) and all(
            self._written.get(name) == self._seen.get(name) for name in ("public", "private", "weights")
        )

    def _settled(self, target: Rendered) -> bool:
        return (
            not self._since
            and self._routed(target)
            and self._weights == target.weights
            and self._clusters.pieces == target.clusters
        )

    async def _raise_if_rejected(self) -> None:
        late = clock.monotonic() - self._settings.accept_seconds
        waiting = [name for name, since in self._since.items() if since < late]
        if not waiting:
            return
        seen = await self._admin.rejections()
        before, self._rejections = self._rejections or {}, seen
        for name in waiting:
            self._since[name] = clock.monotonic()
        worse = [name for name, count in seen.items() if count > before.get(name, 0)]
        if not worse:
            return
        for name in worse:  # so that the same content is written again when it is asked for again
            self._written.pop(name, None)
            self._since.pop(name, None)
            if name == "clusters":
                self._clusters = self._accepted
            if name == "weights":
                self._weights = self._weights_accepted
        raise Rejected(_last_complaint(self._envoy_log) or f"Envoy rejected the {', '.join(worse)}")


def _clusters_of(resources: Iterable[bytes]) -> Clusters:
    """Read back the clusters' file.

    Raises:
        ValueError: it is damaged.
    """
    pieces, serving = {}, set()
    for resource in resources:
        cluster = wire.decode("Any", resource)
        pieces[cluster["name"]] = resource
        if "lb_endpoints" in cluster["load_assignment"]["endpoints"][0]:
            serving.add(cluster["name"])
    return Clusters(pieces, frozenset(serving))


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
