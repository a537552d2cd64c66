"""Brings a rendered plan to Envoy in the order that fails no request, and knows what Envoy has accepted.

What may be sent when is decided in `envoy.order`. Here is the conversation: Envoy's incremental xDS, one response of a
type on its way at a time, so that a change that comes meanwhile overtakes what has not been sent. An Envoy that comes
back says what it has, and gets the difference. What was rejected changes nothing: Envoy keeps what it had.
Protocol: envoyproxy.io, "xDS REST and gRPC protocol", incremental variant.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving import clock, errors
from serving.protobuf import Malformed
from serving.router.envoy import weights, wire
from serving.router.envoy.admin import Admin
from serving.router.envoy.render import Rendered, Resource, resource_of
from serving.router.xds.update_order import Order, Table

log = logging.getLogger(__name__)

_TYPES = {
    "clusters": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "endpoints": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "weights": "type.googleapis.com/envoy.service.runtime.v3.Runtime",
    "routes": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}
_NAMES = {url: name for name, url in _TYPES.items()}

ROUTES_PAUSE = 9.0
"""Pause after routes, in multiples of what Envoy took to read them: it reads all when one changes, 0.1 ms for each
service that is stored, so a burst of them is gathered into a tenth of its time. The first goes at once."""
LONGEST_PAUSE = 1.0
"""Seconds; on a busy machine Envoy may take long for other reasons, and a new service should not wait for that."""


class Rejected(errors.SlipwayError):
    """Envoy refused an update; it goes on with what it had."""


@dataclass
class _Asked:
    """One type of resource in one conversation."""

    began: bool = False
    subscribed: set[str] = field(default_factory=set)
    nonce: str = ""
    """Of the response that is on its way."""
    told: bool = False
    """A starting Envoy waits to be told something of each type, if only that there is nothing."""


class Conversation:
    """What one connected Envoy asked for, and how to answer."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send = send
        self.asked = {name: _Asked() for name in _TYPES}
        self._responses = 0

    def respond(self, name: str, resources: Mapping[str, Resource | None]) -> None:
        """Send what changed of a type; None for what goes."""
        asked = self.asked[name]
        self._responses += 1
        asked.nonce = str(self._responses)
        asked.told = True
        response = {
            "type_url": _TYPES[name],
            "nonce": asked.nonce,
            "resources": [
                {"name": n, "version": found.version, "resource": found.content}
                for n, found in resources.items()
                if found is not None
            ],
            "removed_resources": sorted(n for n, found in resources.items() if found is None),
        }
        self.send(wire.encode("DeltaDiscoveryResponse", response))


class Delivery:
    """What one Envoy is to have, and its conversation with us while it is connected."""

    def __init__(self, folder: Path, admin: Admin, now: Callable[[], float] = clock.monotonic) -> None:
        self._folder = folder
        self._admin = admin
        self._now = now
        self._order = order = Order()
        self._tables: dict[str, Table[Any]] = {
            "clusters": order.clusters, "endpoints": order.endpoints, "weights": order.weights, "routes": order.routes,
        }  # fmt: skip
        self._contents: dict[str, dict[str, Resource]] = {name: {} for name in _TYPES}
        self._aim = 0
        self._given_up = True
        self._sending = {"weights": 0, "routes": 0}
        self._accepted = {"weights": 0, "routes": 0}
        self._rejection = ""
        self._news = asyncio.Event()
        self._with: Conversation | None = None
        self._routes_sent = self._routes_from = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def sockets(self) -> dict[str, str]:
        """Return the absolute paths that `bootstrap` names."""
        return {name: str(self._folder / f"{name}.sock") for name in ("admin", "probe", "changes")}

    def aim(self, change: Rendered) -> int:
        """Change what Envoy is to have, and return the number of this aim; sends what need not wait.

        `confirm` tells when Envoy has it all, `served` whose routes and weights it has.
        """
        self._replace("clusters", change.clusters)
        self._replace("endpoints", change.endpoints)
        self._replace("routes", {name: found for name, (found, _) in change.routes.items()})
        self._order.needs |= {name: needs for name, (_, needs) in change.routes.items()}
        self._order.weights.want(change.weights)
        self._aim += 1
        self._given_up, self._rejection = False, ""
        self._advance()
        self._news.set()
        return self._aim

    @property
    def served(self) -> int:
        """The newest aim whose routes and weights Envoy has accepted."""
        return min(self._accepted.values())

    async def confirm(self, seen: Callable[[], None] = lambda: None) -> None:
        """Wait until Envoy has accepted all of the aim, whatever it becomes meanwhile; without Envoy, for the next one.

        Args:
            seen: called whenever Envoy has answered; then `served` may have grown.

        Raises:
            Rejected: Envoy refused something, with Envoy's own words. The aim is given up until the next.
        """
        while True:
            self._news.clear()
            seen()
            if self._rejection:
                raise Rejected(self._rejection)
            if self._is_settled():
                return
            await self._news.wait()

    async def apply(self, change: Rendered) -> None:
        """Bring the change to Envoy; returns once it has accepted all of it.

        Raises:
            Rejected: Envoy refused it.
        """
        self.aim(change)
        await self.confirm()

    async def wait_ready(self, seconds: float) -> None:
        """Wait until Envoy listens, which a new one does when it has been told something.

        Raises:
            errors.Unavailable: it does not.
        """
        deadline = clock.monotonic() + seconds
        while True:
            try:
                if await self._admin.ready():
                    return
            except errors.Unavailable:
                if clock.monotonic() > deadline:
                    raise
            if clock.monotonic() > deadline:
                raise errors.Unavailable(f"Envoy is not ready after {seconds} s")
            await asyncio.sleep(0.01)

    def connected(self, send: Callable[[bytes], None]) -> Conversation:
        """Begin a conversation; one that was there before is over."""
        for table in self._tables.values():
            table.begin({})
        self._with = Conversation(send)
        self._routes_from = 0.0
        return self._with

    def disconnected(self, ended: Conversation) -> None:
        """End a conversation."""
        if self._with is ended:
            self._with = None

    async def received(self, conversation: Conversation, message: bytes) -> None:
        """Take a request of Envoy's: what it wants from now on, and what it says of a response.

        Raises:
            ValueError: no request, or of a type that we have none of.
            errors.Unavailable: an Envoy that was adopted does not say what weights it has.
        """
        request = wire.decode("DeltaDiscoveryRequest", message)
        name = _NAMES.get(request.get("type_url", ""))
        if name is None:
            raise Malformed(f"a request for {request.get('type_url')!r}")
        versions = request.get("initial_resource_versions", {})
        has = weights.read(await self._admin.runtime()) if name == "weights" and versions else versions
        if conversation is not self._with:
            return
        asked, table = conversation.asked[name], self._tables[name]
        fresh = request.get("resource_names_subscribe", [])
        gone = request.get("resource_names_unsubscribe", [])
        if not asked.began:
            table.begin(has)
            asked.began = True
        else:
            for dropped in (*fresh, *gone):
                table.forget(dropped)
        asked.subscribed |= set(fresh)
        asked.subscribed -= set(gone)
        if asked.nonce and request.get("response_nonce") == asked.nonce:
            self._answered(conversation, name, request.get("error_detail"))
        self._advance()
        self._news.set()

    def _replace(self, name: str, change: Mapping[str, Resource | None]) -> None:
        for key, found in change.items():
            if found is None:
                self._contents[name].pop(key, None)
            else:
                self._contents[name][key] = found
        self._tables[name].want({key: found and found.version for key, found in change.items()})

    def _answered(self, conversation: Conversation, name: str, error: Mapping[str, str] | None) -> None:
        conversation.asked[name].nonce = ""
        self._tables[name].answered(accepted=error is None, whole=name == "weights")
        if name == "routes":
            now = self._now()
            self._routes_from = now + min(ROUTES_PAUSE * (now - self._routes_sent), LONGEST_PAUSE)
        if error is not None:
            self._rejection = error.get("message", "") or f"Envoy rejected {name}"
            self._given_up = True
        elif name in self._accepted:
            self._accepted[name] = max(self._accepted[name], self._sending[name])

    def _advance(self) -> None:
        """Send what may be sent now; the rest waits for what Envoy says of this."""
        talk, order = self._with, self._order
        if talk is None or self._given_up:
            return
        subscribed = talk.asked["endpoints"].subscribed
        if self._idle(talk, "clusters"):
            self._send(talk, "clusters", order.clusters_to_send())
        if self._idle(talk, "endpoints"):
            self._send(talk, "endpoints", order.endpoints_to_send(subscribed))
        if self._idle(talk, "weights"):
            self._send(talk, "weights", order.weights_to_send())
        if self._idle(talk, "routes") and not self._pausing():
            self._send(talk, "routes", order.routes_to_send())
        for name in self._accepted:
            self._note(talk, name)

    def _idle(self, talk: Conversation, name: str) -> bool:
        return talk.asked[name].began and not self._tables[name].busy

    def _send(self, talk: Conversation, name: str, versions: Mapping[str, Any]) -> None:
        """Send this much of a type; nothing of it, where Envoy has been told something already."""
        if not versions and (talk.asked[name].told or name in ("endpoints", "routes")):
            return
        table = self._tables[name]
        table.send(versions)
        if name == "routes":
            self._routes_sent = self._now()
        if name == "weights":
            layer = weights.layer(self._order.weights.all_sent())
            talk.respond(name, {weights.LAYER: resource_of(layer)})
        else:
            contents = self._contents[name]
            talk.respond(name, {n: None if v is None else contents[n] for n, v in versions.items()})

    def _pausing(self) -> bool:
        """Say whether routes have to wait, and come back when they need not."""
        left = self._routes_from - self._now()
        if left <= 0 or not self._order.routes.missing():
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left, self._resume)
        return True

    def _resume(self) -> None:
        self._timer = None
        self._advance()
        self._news.set()

    def _note(self, talk: Conversation, name: str) -> None:
        """Remember which aim a type has reached, or reaches with what is on its way."""
        table = self._tables[name]
        if talk.asked[name].began and not table.missing():
            (self._sending if table.busy else self._accepted)[name] = self._aim

    def _is_settled(self) -> bool:
        talk = self._with
        return talk is not None and all(a.began for a in talk.asked.values()) and self._order.settled
