"""A fake Envoy that reads incremental xDS at the pace of a test, and keeps its resources."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import ParseDict

from serving.router.envoy import messages_pb2, weights
from serving.router.xds.server import DeltaXdsServer
from serving.router.xds.session import TYPE_NAMES, TYPE_URLS, XdsSession
from tests.rig.envoy_json import as_json


class FakeAdmin:
    def __init__(self, envoy: "FakeEnvoy") -> None:
        self._envoy = envoy

    async def runtime(self) -> dict[str, int]:
        return self._envoy.weights


class FakeEnvoy:
    """Keeps `has`, its resources: type → name → (version, JSON)."""

    def __init__(self) -> None:
        self.has: dict[str, dict[str, tuple[str, Any]]] = {name: {} for name in TYPE_URLS}
        self.rejects: set[str] = set()
        self.rejected_address = ""
        """It rejects endpoints with this address, of any cluster."""
        self.hangs = False
        """Whether it reads nothing."""
        self.warming: set[str] = set()
        """Changed clusters that are not in use before their endpoints come once more."""
        self._layers: set[str] = set()
        """Layers of weights to which it has subscribed."""
        self._inbox: deque[bytes] = deque()
        self._connection: tuple[DeltaXdsServer, XdsSession] | None = None

    @property
    def weights(self) -> dict[str, int]:
        layers = [layer.get("layer", {}) for _, layer in self.has["weights"].values()]
        return {key: round(value) for layer in layers for key, value in layer.items()}

    async def connect(self, server: DeltaXdsServer) -> None:
        """Open a new session that announces the resources of earlier ones."""
        self._inbox.clear()
        self.warming.clear()  # Envoy waits for 15 s at most, and no longer if its stream broke
        self._connection = server, server.open_session(self._inbox.append)
        self._layers = set(weights.LAYERS[:1])
        await self._announce("weights", self._layers)
        await self.read()  # what it has of other layers is ignored
        for name in weights.LAYERS[1:]:
            self._layers.add(name)
            await self._request("weights", resource_names_subscribe=[name])
        await self._announce("clusters", ())
        if self.has["clusters"]:  # Envoy subscribes to endpoints for the sake of a cluster
            await self._announce("endpoints", self.has["clusters"])
        await self._announce("routes", ("public", "private"))

    async def _announce(self, kind: str, names: Iterable[str]) -> None:
        versions = {name: version for name, (version, _) in self.has[kind].items()}
        await self._request(kind, resource_names_subscribe=list(names), initial_resource_versions=versions)

    @property
    def unread(self) -> int:
        """The number of responses that it has not read."""
        return len(self._inbox)

    def next_response(self) -> messages_pb2.DeltaDiscoveryResponse | None:
        """Return the oldest unread response."""
        return messages_pb2.DeltaDiscoveryResponse.FromString(self._inbox[0]) if self._inbox else None

    async def read(self) -> bool:
        """Read one response, if there is one, and answer it."""
        response = self.next_response()
        if response is None or self.hangs:
            return False
        self._inbox.popleft()
        kind = TYPE_NAMES[response.type_url]
        updates = {r.name: (r.version, as_json(r.resource)) for r in response.resources}
        if kind == "weights":  # Envoy ignores what it has not subscribed to
            updates = {name: update for name, update in updates.items() if name in self._layers}
        if kind == "endpoints":  # a response may cross the end of a subscription
            updates = {name: update for name, update in updates.items() if name in self.has["clusters"]}
        refused = sorted(name for name, (_, value) in updates.items() if self._rejects(name, value))
        removed = [name for name in response.removed_resources if name in self.has[kind]]
        new = [name for name in updates if name not in self.has[kind]]
        if kind == "clusters":
            self.warming |= updates.keys() - {*new, *refused}
            self.warming -= set(removed)
        elif kind == "endpoints":
            self.warming -= updates.keys()
        self.has[kind] |= {name: update for name, update in updates.items() if name not in refused}
        for name in removed:
            self.has[kind].pop(name, None)
        error = {"error_detail": {"message": f"no {refused[0]}"}} if refused else {}
        await self._request(kind, response_nonce=response.nonce, **error)
        if kind == "clusters":
            new = [name for name in new if name in self.has[kind]]
            for name in removed:
                self.has["endpoints"].pop(name, None)
            if new or removed:
                await self._request(
                    "endpoints", resource_names_subscribe=new, resource_names_unsubscribe=removed
                )
        return True

    def _rejects(self, name: str, value: Any) -> bool:
        return name in self.rejects or bool(self.rejected_address and self.rejected_address in str(value))

    async def _request(self, kind: str, **fields: Any) -> None:
        assert self._connection is not None
        server, session = self._connection
        request = messages_pb2.DeltaDiscoveryRequest(type_url=TYPE_URLS[kind])
        await server.receive(session, ParseDict(fields, request).SerializeToString())

    def missing(self) -> list[str]:
        """Return the clusters of routes that are absent, and those that cannot serve."""
        problems = []
        for route in _weighted(self.has["routes"]):
            prefix = route.get("runtime_key_prefix")
            for arm in route["clusters"]:
                name = arm["name"]
                if name not in self.has["clusters"]:
                    problems.append(f"{name} is missing")
                weight = arm["weight"]
                if prefix:
                    key = f"{prefix}.{name}"
                    if key not in self.weights:
                        problems.append(f"{key} has no weight")
                    weight = self.weights.get(key, weight)
                endpoints = self.has["endpoints"].get(name, ("", {}))[1].get("endpoints")
                if weight and not endpoints:
                    problems.append(f"{name} has weight and no endpoints")
        return problems


def _weighted(value: Any) -> list[dict[str, Any]]:
    """Return every `weighted_clusters` in JSON."""
    if isinstance(value, dict):
        direct = [value["weighted_clusters"]] if "weighted_clusters" in value else []
        return direct + [inner for item in value.values() for inner in _weighted(item)]
    if isinstance(value, (list, tuple)):
        return [inner for item in value for inner in _weighted(item)]
    return []
