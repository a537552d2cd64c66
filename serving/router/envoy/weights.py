"""Weights as entries of Envoy's runtime, so that a change of weights is not a change of routes.

Envoy reads a whole route configuration again if one route changes, which costs its main thread 0.1 ms for
every stored service; an entry of the runtime costs a microsecond. A key has a digest of the ring's order, so
that weights for one order are never applied to another.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.struct_pb2 import Struct, Value

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy.resource import encode
from serving.router.plan.service import GatewayService

LAYERS = tuple(f"weights-{digit}" for digit in "0123456789abcdef")
"""Names of the runtime's layers, and of the resource of each: one for each last digit of a key's digest. With
16, Envoy reads a change among 1,000 services in 0.9 ms, with one layer in 1.8
(docs/decisions/envoy-configuration.md)."""
_DIGEST_BYTES = 6


@dataclass(frozen=True)
class Weights:
    """The weights of one service, encoded, and the clusters that must have endpoints first."""

    entries: bytes
    needs: frozenset[str]


def key_prefix(service: GatewayService) -> str:
    """Return the prefix of the service's keys; empty if its weights are in its route.

    Keys have the name of a cluster, so a ring with two segments of one cluster has none; neither has a ring
    of one cluster, whose weight never changes.
    """
    clusters = [segment.cluster for segment in service.ring]
    if len(clusters) < 2 or len(set(clusters)) < len(clusters):
        return ""
    digest = hashlib.blake2b("\n".join(clusters).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{service.namespace}/{service.name}.{digest}"


def weights_of(service: GatewayService, prefix: str) -> Weights:
    """Return the weights of a service that has this key prefix."""
    return _weights(prefix, {segment.cluster: segment.size for segment in service.ring})


def layer_of(prefix: str) -> str:
    """Return the layer of the keys with this prefix."""
    return f"weights-{prefix[-1]}"


def layer(name: str, weights: Mapping[str, Weights]) -> bytes:
    """Return the encoded Runtime resource of a layer, which has its part of the weights of all services, by
    prefix.

    Protobuf merges parts of a message that are concatenated.
    """
    entries = b"".join(weights[prefix].entries for prefix in sorted(weights) if layer_of(prefix) == name)
    return encode(envoy.Runtime(name=name)) + entries


def parse(entries: Mapping[str, int]) -> dict[str, Weights]:
    """Return the weights in the entries of a runtime, by prefix, without Envoy's own settings there."""
    by_prefix: dict[str, dict[str, int]] = {}
    for key, weight in entries.items():
        # A key is NAMESPACE/NAME.DIGEST.NAMESPACE/SERVICE/PORT, without a dot in the namespace. Envoy's have
        # no `/`.
        if "/" not in key:
            continue
        prefix = "/".join(key.split("/")[:2]).rpartition(".")[0]
        by_prefix.setdefault(prefix, {})[key.removeprefix(f"{prefix}.")] = weight
    return {prefix: _weights(prefix, sizes) for prefix, sizes in by_prefix.items()}


def _weights(prefix: str, sizes: Mapping[str, int]) -> Weights:
    fields = {f"{prefix}.{cluster}": Value(number_value=size) for cluster, size in sizes.items()}
    part = envoy.Runtime(layer=Struct(fields=fields))
    needs = frozenset(cluster for cluster, size in sizes.items() if size)
    return Weights(encode(part), needs)
