"""One stream of an Envoy: its subscriptions, and the responses to them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from google.protobuf.any_pb2 import Any

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy.resource import Resource, encode, type_url

TYPE_URLS = {
    "clusters": type_url(envoy.Cluster),
    "endpoints": type_url(envoy.ClusterLoadAssignment),
    "weights": type_url(envoy.Runtime),
    "routes": type_url(envoy.RouteConfiguration),
}
TYPE_NAMES = {url: name for name, url in TYPE_URLS.items()}


@dataclass
class Subscription:
    """One type of resource in a session."""

    started: bool = False
    """Whether Envoy has sent its first request, which has the versions of the resources that Envoy has."""
    names: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)
    """Names subscribed to for which no response was sent; a starting Envoy waits for those of weights."""
    nonce: str = ""
    """Nonce of the response that awaits Envoy's ACK or NACK; empty without one."""
    responded: bool = False
    """Whether a response was sent: a starting Envoy waits for one of each type, even an empty one."""


class XdsSession:
    """The subscriptions of one stream, by type of resource."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        """Send messages to Envoy by `send`."""
        self._send = send
        self._responses = 0
        self.subscriptions = {name: Subscription() for name in TYPE_URLS}

    def respond(self, type_name: str, resources: Mapping[str, Resource | None]) -> None:
        """Send changed resources of one type, by name; None removes a resource."""
        subscription = self.subscriptions[type_name]
        self._responses += 1
        subscription.nonce = str(self._responses)
        subscription.responded = True
        subscription.unanswered -= resources.keys()
        response = envoy.DeltaDiscoveryResponse(
            type_url=TYPE_URLS[type_name],
            nonce=subscription.nonce,
            resources=[
                envoy.Resource(name=name, version=resource.version, resource=Any.FromString(resource.content))
                for name, resource in resources.items()
                if resource is not None
            ],
            removed_resources=sorted(name for name, resource in resources.items() if resource is None),
        )
        self._send(encode(response))
