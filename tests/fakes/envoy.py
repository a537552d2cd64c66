"""An Envoy that reads incremental xDS as slowly as a test wants, and remembers what it has. The real one is tested too."""

from collections import deque
from typing import Any

from serving.router.envoy import wire
from serving.router.xds.server import _TYPES, Conversation, Delivery

NAMES = {url: name for name, url in _TYPES.items()}


class FakeAdmin:
    def __init__(self, envoy: "FakeEnvoy") -> None:
        self._envoy = envoy

    async def runtime(self) -> dict[str, int]:
        return self._envoy.weights


class FakeEnvoy:
    """Has resources by kind and name: (version, decoded message)."""

    def __init__(self) -> None:
        self.has: dict[str, dict[str, tuple[str, Any]]] = {name: {} for name in _TYPES}
        self.rejects: set[str] = set()
        self._inbox: deque[bytes] = deque()
        self._to: tuple[Delivery, Conversation] | None = None

    @property
    def weights(self) -> dict[str, int]:
        found = self.has["weights"].get("weights")
        return {key: round(value) for key, value in found[1].get("layer", {}).items()} if found else {}

    async def connect(self, delivery: Delivery) -> None:
        """Begin anew, with what is already here."""
        self._inbox.clear()
        self._to = delivery, delivery.connected(self._inbox.append)
        for kind, found in self.has.items():
            fixed = {"weights": ["weights"], "routes": ["public", "private"]}
            names = fixed.get(kind, list(self.has["clusters"]))
            await self._say(
                kind,
                resource_names_subscribe=[] if kind == "clusters" else names,
                initial_resource_versions={name: version for name, (version, _) in found.items()},
            )

    async def read(self) -> bool:
        """Take one response, if there is one, and answer it."""
        if not self._inbox:
            return False
        message = wire.decode("DeltaDiscoveryResponse", self._inbox.popleft())
        kind = NAMES[message["type_url"]]
        fresh = {r["name"]: (r["version"], r["resource"]) for r in message.get("resources", [])}
        if kind == "endpoints":  # a response may cross the end of a subscription
            fresh = {name: found for name, found in fresh.items() if name in self.has["clusters"]}
        refused = sorted(self.rejects & fresh.keys())
        gone = message.get("removed_resources", [])
        new = [name for name in fresh if name not in self.has[kind]]
        self.has[kind] |= {name: found for name, found in fresh.items() if name not in refused}
        for name in gone:
            self.has[kind].pop(name, None)
        error = {"error_detail": {"message": f"no {refused[0]}"}} if refused else {}
        await self._say(kind, response_nonce=message["nonce"], **error)
        if kind == "clusters":
            new = [name for name in new if name in self.has[kind]]
            for name in gone:
                self.has["endpoints"].pop(name, None)
            if new or gone:
                await self._say("endpoints", resource_names_subscribe=new, resource_names_unsubscribe=gone)
        return True

    async def _say(self, kind: str, **fields: Any) -> None:
        assert self._to is not None
        delivery, conversation = self._to
        request = {"type_url": _TYPES[kind], **{name: value for name, value in fields.items() if value}}
        await delivery.received(conversation, wire.encode("DeltaDiscoveryRequest", request))

    def missing(self) -> list[str]:
        """Return what a request would meet now: clusters that routes name and are not there, or that cannot serve."""
        found = []
        for route in _weighted(self.has["routes"]):
            prefix = route.get("runtime_key_prefix")
            for arm in route["clusters"]:
                name = arm["name"]
                if name not in self.has["clusters"]:
                    found.append(f"{name} is not there")
                weight = arm["weight"]
                if prefix:
                    key = f"{prefix}.{name}"
                    if key not in self.weights:
                        found.append(f"{key} has no weight")
                    weight = self.weights.get(key, weight)
                endpoints = self.has["endpoints"].get(name, ("", {}))[1].get("endpoints")
                if weight and not endpoints:
                    found.append(f"{name} has weight and no endpoints")
        return found


def _weighted(value: Any) -> list[dict[str, Any]]:
    """Every `weighted_clusters` in there."""
    if isinstance(value, dict):
        mine = [value["weighted_clusters"]] if "weighted_clusters" in value else []
        return mine + [found for item in value.values() for found in _weighted(item)]
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in _weighted(item)]
    return []
