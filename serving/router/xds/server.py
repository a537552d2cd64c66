"""The incremental xDS protocol: sends resources to one Envoy in an order that fails no request.

One response of each type is in flight at a time, so that later changes replace those not sent yet. An Envoy
that reconnects reports its resources and gets the difference. After a rejected update Envoy keeps the
resources it had. Protocol: envoyproxy.io, "xDS REST and gRPC protocol", incremental variant.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError

from serving import clock, errors
from serving.data_dir import DataDir
from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy import weights
from serving.router.envoy.admin import Admin
from serving.router.envoy.render import ResourceChanges
from serving.router.envoy.resource import Resource, encoded_resource
from serving.router.envoy.weights import Weights
from serving.router.xds.resource_state import ResourceState
from serving.router.xds.session import TYPE_NAMES, TYPE_URLS, XdsSession
from serving.router.xds.update_order import UpdateOrder

log = logging.getLogger(__name__)

ROUTES_PAUSE_SHARE = 9.0
"""Pause after routes, in multiples of the time that Envoy took to read them. It reads all routes if one
changes (0.1 ms for each service); with the pause, a burst of changes takes a tenth of its time."""
LONGEST_ROUTES_PAUSE = 1.0
"""Seconds; a new service must not wait longer if Envoy is slow for other reasons."""
READY_POLL_SECONDS = 0.01
"""Between questions to a starting Envoy; the start itself takes 0.2 s."""


class Rejected(errors.SlipwayError):
    """Envoy rejected an update and keeps its old configuration."""


class MalformedRequest(ValueError):
    """A message on the stream is not a request that this server knows."""


class DeltaXdsServer:
    """The target resources of one Envoy, and its session while it is connected."""

    def __init__(self, data_dir: DataDir, admin: Admin, now: Callable[[], float] = clock.monotonic) -> None:
        self._data_dir = data_dir
        self._admin = admin
        self._now = now
        self._order = order = UpdateOrder()
        self._states: dict[str, ResourceState[Any]] = {
            "clusters": order.clusters,
            "endpoints": order.endpoints,
            "weights": order.weights,
            "routes": order.routes,
        }
        self._resources: dict[str, dict[str, Resource]] = {name: {} for name in TYPE_URLS}
        """The target's content, by type and name; weights have theirs in their state."""
        self._target_version = 0
        """The number of targets so far."""
        self._has_target = asyncio.Event()
        self._suspended = True
        """No updates are sent before the first target, nor between a rejection and the next target."""
        self._sent_version = {"weights": 0, "routes": 0}
        """By type: the target version that Envoy has reached once it accepts the response in flight."""
        self._acknowledged_version = {"weights": 0, "routes": 0}
        """By type: the newest target version that Envoy has reached."""
        self._rejection = ""
        """Envoy's message if it has rejected the target; else empty."""
        self._progress = asyncio.Event()
        """Set when the result of `wait_acknowledged` may have changed."""
        self._session: XdsSession | None = None
        self._routes_sent_at = self._routes_paused_until = 0.0
        self._pause_end: asyncio.TimerHandle | None = None
        """Resumes sending at the end of the pause after routes."""

    def sockets(self) -> dict[str, str]:
        """Return the absolute paths of the sockets that `bootstrap` names."""
        return {
            "admin": str(self._data_dir.admin_socket),
            "probe": str(self._data_dir.probe_socket),
            "changes": str(self._data_dir.gateway / "changes.sock"),
        }

    def set_target(self, changes: ResourceChanges) -> int:
        """Change the target, send what need not wait, and return the target's version."""
        self._replace("clusters", changes.clusters)
        self._replace("endpoints", changes.endpoints)
        self._replace("routes", {name: routes.resource for name, routes in changes.routes.items()})
        self._order.dependencies |= {name: routes.dependencies for name, routes in changes.routes.items()}
        self._order.weights.set_target(changes.weights)
        self._target_version += 1
        self._suspended, self._rejection = False, ""
        self._has_target.set()
        self._send_next()
        self._progress.set()
        return self._target_version

    @property
    def acknowledged_version(self) -> int:
        """The newest target version whose routes and weights Envoy has acknowledged."""
        return min(self._acknowledged_version.values())

    async def has_target_within(self, seconds: float) -> bool:
        """Return whether there is a first target, at the latest after this time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_target.wait(), seconds)
        return self._has_target.is_set()

    async def wait_acknowledged(self, on_answer: Callable[[], None] = lambda: None) -> None:
        """Wait until Envoy has acknowledged the whole target, including later changes.

        Without an Envoy, wait for the next one.

        Args:
            on_answer: called after each of Envoy's answers; `acknowledged_version` may have grown.

        Raises:
            Rejected: with Envoy's message. Nothing more is sent until the next target.
        """
        while True:
            self._progress.clear()
            on_answer()
            if self._rejection:
                raise Rejected(self._rejection)
            if self._is_settled():
                return
            await self._progress.wait()

    async def apply(self, changes: ResourceChanges) -> None:
        """Change the target, and wait until Envoy has acknowledged all of it.

        Raises:
            Rejected: with Envoy's message.
        """
        self.set_target(changes)
        await self.wait_acknowledged()

    async def wait_ready(self, seconds: float) -> None:
        """Wait until Envoy listens; a new Envoy does so after a first response of each type.

        Raises:
            errors.Unavailable: Envoy is not ready in time.
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
            await asyncio.sleep(READY_POLL_SECONDS)

    def open_session(self, send: Callable[[bytes], None]) -> XdsSession:
        """Begin a session; it replaces any other."""
        for state in self._states.values():
            state.reset({})
        self._session = XdsSession(send)
        self._sent_version = dict(self._acknowledged_version)
        self._routes_paused_until = 0.0
        return self._session

    def close_session(self, session: XdsSession) -> None:
        """End a session."""
        if self._session is session:
            self._session = None

    async def receive(self, session: XdsSession, message: bytes) -> None:
        """Handle a request: a change of subscriptions, or the answer to a response.

        Raises:
            MalformedRequest: not a request, or for a type that is not served.
            errors.Unavailable: an adopted Envoy does not report its weights.
        """
        try:
            request = envoy.DeltaDiscoveryRequest.FromString(message)
        except DecodeError as error:
            raise MalformedRequest(str(error)) from error
        type_name = TYPE_NAMES.get(request.type_url)
        if type_name is None:
            raise MalformedRequest(f"type {request.type_url!r} is not served")
        versions: Mapping[str, Any] = dict(request.initial_resource_versions)
        if type_name == "weights" and versions:
            # Envoy reports versions of layers; the state of weights is by key prefix.
            versions = weights.parse(await self._admin.runtime())
        if session is not self._session:  # replaced, perhaps during the request to the admin socket
            return
        subscription, state = session.subscriptions[type_name], self._states[type_name]
        if not subscription.started:
            state.reset(versions)
            subscription.started = True
        else:
            for name in (*request.resource_names_subscribe, *request.resource_names_unsubscribe):
                # Without effect on weights, whose state is by key prefix: `_send_layers` resends layers.
                state.forget(name)
        subscription.names |= set(request.resource_names_subscribe)
        subscription.names -= set(request.resource_names_unsubscribe)
        subscription.unanswered |= set(request.resource_names_subscribe)
        subscription.unanswered &= subscription.names
        if subscription.nonce and request.response_nonce == subscription.nonce:
            rejection = request.error_detail if request.HasField("error_detail") else None
            self._take_answer(session, type_name, rejection)
        self._send_next()
        self._progress.set()

    def _replace(self, type_name: str, changes: Mapping[str, Resource | None]) -> None:
        """Change the target of a type whose state is by resource, which are all types but weights."""
        resources = self._resources[type_name]
        versions: dict[str, str | None] = {}
        for name, resource in changes.items():
            if resource is None:
                resources.pop(name, None)
                versions[name] = None
            else:
                resources[name] = resource
                versions[name] = resource.version
        self._states[type_name].set_target(versions)

    def _take_answer(self, session: XdsSession, type_name: str, rejection: envoy.Status | None) -> None:
        """Record Envoy's ACK of the response in flight, or its NACK with the status `rejection`."""
        session.subscriptions[type_name].nonce = ""
        self._states[type_name].mark_answered(accepted=rejection is None)
        if type_name == "routes":
            now = self._now()
            pause = min(ROUTES_PAUSE_SHARE * (now - self._routes_sent_at), LONGEST_ROUTES_PAUSE)
            self._routes_paused_until = now + pause
        if rejection is not None:
            self._rejection = rejection.message or f"Envoy rejected {type_name}"
            self._suspended = True
        if type_name in self._acknowledged_version:  # weights or routes
            acknowledged, sent = self._acknowledged_version, self._sent_version
            if rejection is None:
                acknowledged[type_name] = max(acknowledged[type_name], sent[type_name])
            sent[type_name] = acknowledged[type_name]

    def _send_next(self) -> None:
        """Send all permitted updates; the others wait for Envoy's answers."""
        session, order = self._session, self._order
        if session is None or self._suspended:
            return
        if self._may_send(session, "clusters"):
            self._send(session, "clusters", order.clusters_to_send())
        if self._may_send(session, "endpoints"):
            names = session.subscriptions["endpoints"].names
            self._send(session, "endpoints", order.endpoints_to_send(names))
        if self._may_send(session, "weights"):
            self._send_layers(session, order.weights_to_send())
        if self._may_send(session, "routes") and not self._routes_paused():
            self._send(session, "routes", order.routes_to_send())
        for type_name in self._acknowledged_version:
            self._record_version(session, type_name)

    def _may_send(self, session: XdsSession, type_name: str) -> bool:
        return session.subscriptions[type_name].started and not self._states[type_name].awaiting_answer

    def _send(self, session: XdsSession, type_name: str, versions: Mapping[str, Any]) -> None:
        """Send resources of one type by name; None removes a resource.

        A starting Envoy waits for a first response of clusters, even an empty one. To endpoints and routes
        Envoy subscribes by name, and waits for the named resources.
        """
        responded = session.subscriptions[type_name].responded
        if not versions and (responded or type_name in ("endpoints", "routes")):
            return
        if type_name == "clusters":
            # Envoy warms a changed cluster beside the old one until it gets the endpoints once more.
            for name in versions.keys() & self._order.clusters.acknowledged.keys():
                self._order.endpoints.doubt(name)
        self._states[type_name].mark_sent(versions)
        if type_name == "routes":
            self._routes_sent_at = self._now()
        resources = self._resources[type_name]
        session.respond(
            type_name,
            {name: None if version is None else resources[name] for name, version in versions.items()},
        )

    def _send_layers(self, session: XdsSession, changes: Mapping[str, Weights | None]) -> None:
        """Send the layers with changed weights, and those that Envoy waits for, even without weights.

        A layer is sent with all its weights: with the changed ones, and as they are at Envoy with the others.

        Args:
            session: Envoy's.
            changes: by key prefix; None removes.
        """
        subscription, state = session.subscriptions["weights"], self._order.weights
        awaited_layers = subscription.unanswered.intersection(weights.LAYERS)
        resent = {
            prefix: part
            for prefix, part in state.all_sent().items()
            if weights.layer_of(prefix) in awaited_layers
        }
        subscribed_changes = {
            prefix: part for prefix, part in changes.items() if weights.layer_of(prefix) in subscription.names
        }
        sent = {**resent, **subscribed_changes}
        names = {weights.layer_of(prefix) for prefix in sent} | awaited_layers
        if not names:
            return
        state.mark_sent(sent)
        layers = {name: weights.layer(name, state.all_sent()) for name in sorted(names)}
        session.respond(
            "weights", {name: encoded_resource(envoy.Runtime, layer) for name, layer in layers.items()}
        )

    def _routes_paused(self) -> bool:
        """Return whether routes must wait; if so, sending resumes after the pause."""
        remaining = self._routes_paused_until - self._now()
        if remaining <= 0 or not self._order.routes.to_update():
            return False
        if self._pause_end is None:
            self._pause_end = asyncio.get_running_loop().call_later(remaining, self._resume)
        return True

    def _resume(self) -> None:
        self._pause_end = None
        self._send_next()
        self._progress.set()

    def _record_version(self, session: XdsSession, type_name: str) -> None:
        """Record that Envoy has reached the present target in a type, or will with the response in flight.

        Nothing is recorded while another response of the type must follow.
        """
        state = self._states[type_name]
        if session.subscriptions[type_name].started and not state.to_update():
            versions = self._sent_version if state.awaiting_answer else self._acknowledged_version
            versions[type_name] = self._target_version

    def _is_settled(self) -> bool:
        """Whether an Envoy is connected and has acknowledged the whole target."""
        session = self._session
        if session is None or not self._order.settled:
            return False
        # Without a cluster, Envoy subscribes to no endpoints.
        return all(
            subscription.started or (type_name == "endpoints" and not self._order.endpoints.target)
            for type_name, subscription in session.subscriptions.items()
        )
