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

from serving import clock, errors
from serving.protobuf import Malformed
from serving.router.admin import Admin
from serving.router.envoy import order, weights, wire
from serving.router.envoy.order import View
from serving.router.envoy.render import Rendered, Resource, resource_of
from serving.router.envoy.weights import Weights

log = logging.getLogger(__name__)

_TYPES = {
    "clusters": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "endpoints": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "weights": "type.googleapis.com/envoy.service.runtime.v3.Runtime",
    "routes": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}
_NAMES = {url: name for name, url in _TYPES.items()}
_UNKNOWN = "unknown"
"""The version of what was in a rejected update: parts of it may have been accepted."""


class Rejected(errors.SlipwayError):
    """Envoy refused an update; it goes on with what it had."""


@dataclass
class _Kind:
    """One type of resource in one conversation: versions by name."""

    asked: bool = False
    subscribed: set[str] = field(default_factory=set)
    sent: dict[str, str] = field(default_factory=dict)
    accepted: dict[str, str] = field(default_factory=dict)
    nonce: str = ""
    """Of the response that is on its way, if one is."""
    told: bool = False
    """A starting Envoy waits to be told something of each type, if only that there is nothing."""

    @property
    def idle(self) -> bool:
        return self.asked and not self.nonce


class Conversation:
    """What one connected Envoy asked for, was sent and has accepted."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self.send = send
        self.kinds = {name: _Kind() for name in _TYPES}
        self.weights_sent: Mapping[str, Weights] = {}
        self.weights_accepted: Mapping[str, Weights] = {}
        self._responses = 0

    def respond(
        self, name: str, resources: Mapping[str, Resource], removed: frozenset[str] = frozenset()
    ) -> None:
        """Send what changed of a type; nothing else of it is sent before Envoy has answered."""
        kind = self.kinds[name]
        self._responses += 1
        kind.nonce = str(self._responses)
        kind.told = True
        kind.sent = {n: v for n, v in kind.sent.items() if n not in removed}
        kind.sent |= {n: found.version for n, found in resources.items()}
        response = {
            "type_url": _TYPES[name],
            "nonce": kind.nonce,
            "resources": [
                {"name": n, "version": found.version, "resource": found.content}
                for n, found in resources.items()
            ],
            "removed_resources": sorted(removed),
        }
        self.send(wire.encode("DeltaDiscoveryResponse", response))

    def sent(self) -> View:
        return order.view(self.kinds["clusters"].sent, self.kinds["endpoints"].sent, self.weights_sent)

    def accepted(self) -> View:
        return order.view(
            self.kinds["clusters"].accepted, self.kinds["endpoints"].accepted, self.weights_accepted
        )


class Delivery:
    """What one Envoy is to have, and its conversation with us while it is connected."""

    def __init__(self, folder: Path, admin: Admin) -> None:
        self._folder = folder
        self._admin = admin
        self._target: Rendered | None = None
        self._rejection = ""
        self._news = asyncio.Event()
        self._with: Conversation | None = None

    def sockets(self) -> dict[str, str]:
        """Return the absolute paths that `bootstrap` names."""
        return {name: str(self._folder / f"{name}.sock") for name in ("admin", "probe", "changes")}

    def aim(self, rendered: Rendered) -> None:
        """Change what Envoy is to have; sends what need not wait. `confirm` tells when Envoy has it."""
        self._target = rendered
        self._rejection = ""
        self._advance()

    async def confirm(self, seen: Callable[[], None] = lambda: None) -> None:
        """Wait until Envoy has accepted all of the aim, whatever it becomes meanwhile; without Envoy, for the next one.

        Args:
            seen: called whenever Envoy has answered; then `serves` may have changed its answer.

        Raises:
            Rejected: Envoy refused something, with Envoy's own words. The aim is given up.
        """
        while True:
            self._news.clear()
            seen()
            if self._rejection:
                raise Rejected(self._rejection)
            if self._target is None or self._settled(self._target):
                return
            await self._news.wait()

    async def apply(self, rendered: Rendered) -> None:
        """Bring Envoy to the plan; returns once it has accepted all of it.

        Raises:
            Rejected: Envoy refused it.
        """
        self.aim(rendered)
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

    def serves(self, rendered: Rendered) -> bool:
        """Say whether Envoy has accepted these routes and weights, and nothing older or newer is on its way."""
        if self._with is None:
            return False
        routes, shares = self._with.kinds["routes"], self._with.kinds["weights"]
        return (
            routes.idle
            and shares.idle
            and all(routes.accepted.get(n) == wanted.version for n, wanted in rendered.routes.items())
            and rendered.weights.items() <= self._with.weights_accepted.items()
        )

    def connected(self, send: Callable[[bytes], None]) -> Conversation:
        """Begin a conversation; one that was there before is over."""
        self._with = Conversation(send)
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
        kind = conversation.kinds[name]
        if not kind.asked:
            kind.accepted = dict(request.get("initial_resource_versions", {}))
            kind.sent = dict(kind.accepted)
            if name == "weights" and kind.accepted:
                conversation.weights_sent = conversation.weights_accepted = weights.read(
                    await self._admin.runtime()
                )
            kind.asked = True
        else:
            for fresh in request.get("resource_names_subscribe", []):
                kind.accepted.pop(fresh, None)
                kind.sent.pop(fresh, None)
        kind.subscribed |= set(request.get("resource_names_subscribe", []))
        for ended in request.get("resource_names_unsubscribe", []):
            kind.subscribed.discard(ended)
            kind.accepted.pop(ended, None)
            kind.sent.pop(ended, None)
        if conversation is not self._with:
            return
        if kind.nonce and request.get("response_nonce") == kind.nonce:
            self._answered(conversation, name, request.get("error_detail"))
        self._advance()
        self._news.set()

    def _answered(self, conversation: Conversation, name: str, error: Mapping[str, str] | None) -> None:
        kind = conversation.kinds[name]
        kind.nonce = ""
        if error is None:
            kind.accepted = dict(kind.sent)
            if name == "weights":
                conversation.weights_accepted = conversation.weights_sent
            return
        self._rejection = error.get("message", "") or f"Envoy rejected {name}"
        self._target = None
        if name == "weights":
            conversation.weights_sent = conversation.weights_accepted
        kind.sent = {
            n: version if kind.accepted.get(n) == version else _UNKNOWN for n, version in kind.sent.items()
        }

    def _advance(self) -> None:
        """Send what may be sent now; the rest waits for what Envoy says of this."""
        target, talk = self._target, self._with
        if target is None or talk is None:
            return
        kinds, routed = talk.kinds, self.serves(target)
        if kinds["clusters"].idle:
            changed = _changed(target.clusters, kinds["clusters"].sent)
            gone = order.obsolete_clusters(target, kinds["clusters"].sent.keys(), routed=routed)
            if changed or gone or not kinds["clusters"].told:
                talk.respond("clusters", changed, gone)
        if kinds["endpoints"].idle:
            asked = kinds["endpoints"]
            found = order.endpoints_for(target, asked.subscribed, asked.sent, routed=routed)
            if found:
                talk.respond("endpoints", found)
        if kinds["weights"].idle:
            shares = order.weights_for(target, talk.sent(), talk.accepted(), routed=routed)
            if shares != talk.weights_sent or not kinds["weights"].told:
                talk.weights_sent = shares
                talk.respond("weights", {weights.LAYER: resource_of(weights.layer(shares))})
        if kinds["routes"].idle and order.may_route(target, talk.sent(), talk.accepted()):
            asked = kinds["routes"]
            found = {n: r for n, r in _changed(target.routes, asked.sent).items() if n in asked.subscribed}
            if found:
                talk.respond("routes", found)

    def _settled(self, target: Rendered) -> bool:
        if self._with is None or not self.serves(target):
            return False
        kinds = self._with.kinds
        return (
            all(kind.idle for kind in kinds.values())
            and self._with.weights_accepted == target.weights
            and kinds["clusters"].accepted == {n: wanted.version for n, wanted in target.clusters.items()}
            and all(kinds["endpoints"].accepted.get(n) == e.version for n, e in target.endpoints.items())
        )


def _changed(wanted: Mapping[str, Resource], sent: Mapping[str, str]) -> dict[str, Resource]:
    return {name: found for name, found in wanted.items() if sent.get(name) != found.version}
