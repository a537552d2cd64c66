"""Weights as entries of Envoy's runtime, so that a change of weights is not a change of routes.

Envoy reads a whole route configuration again if one route changes, which costs its main thread 0.1 ms for
every stored service; an entry of the runtime costs a microsecond.

A key is `NAMESPACE/NAME.DIGEST.CLUSTER`. `NAMESPACE/NAME.DIGEST` is the key prefix of a service, which its
routes name (`runtime_key_prefix`). DIGEST is of the order of the ring's clusters, so that weights for one
order are never applied to another.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.struct_pb2 import Struct, Value

from serving.router.envoy import messages_pb2 as envoy
from serving.router.envoy.resource import encode
from serving.router.plan.service import GatewayService

LAYERS = tuple(f"weights-{digit}" for digit in "0123456789abcdef")
"""The layers of the runtime, each of which is one resource: a layer has the weights of the key prefixes that
end with its digit. With 16 layers Envoy reads a change among 1,000 services in 0.9 ms, with one in 1.8 ms
(docs/decisions/envoy-configuration.md). Envoy subscribes to them as its `bootstrap` says."""
_DIGEST_BYTES = 6


@dataclass(frozen=True)
class Weights:
    """The weights of one service."""

    entries: bytes
    """An encoded Runtime message with the weights alone."""
    needs: frozenset[str]
    """The clusters with weight, which must have endpoints before Envoy gets the weights."""


def key_prefix(service: GatewayService) -> str:
    """Return the key prefix of a service; empty if its weights are in its routes.

    They are in its routes if a cluster has two segments, as a key names a cluster and not a segment, and if
    the ring has only one cluster, whose weight never changes.
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
    last_digit = prefix[-1]  # of the digest, in hexadecimal
    return f"weights-{last_digit}"


def layer(name: str, weights: Mapping[str, Weights]) -> bytes:
    """Return a layer as an encoded Runtime message.

    Args:
        name: the layer's, one of `LAYERS`.
        weights: those of all services, by key prefix; those of other layers are left out.
    """
    # Protobuf merges the concatenated encodings of several messages.
    entries = b"".join(weights[prefix].entries for prefix in sorted(weights) if layer_of(prefix) == name)
    return encode(envoy.Runtime(name=name)) + entries


def parse(entries: Mapping[str, int]) -> dict[str, Weights]:
    """Return the weights in the entries of Envoy's runtime, by key prefix, without Envoy's own settings."""
    by_prefix: dict[str, dict[str, int]] = {}
    for key, weight in entries.items():
        if "/" not in key:  # a setting of Envoy
            continue
        # NAMESPACE/NAME.DIGEST.NAMESPACE/SERVICE/PORT: NAME may have dots, NAMESPACE has none.
        namespace, name_digest_namespace, *_ = key.split("/")
        name_digest, _, _ = name_digest_namespace.rpartition(".")
        prefix = f"{namespace}/{name_digest}"
        cluster = key.removeprefix(f"{prefix}.")
        by_prefix.setdefault(prefix, {})[cluster] = weight
    return {prefix: _weights(prefix, sizes) for prefix, sizes in by_prefix.items()}


def _weights(prefix: str, sizes: Mapping[str, int]) -> Weights:
    fields = {f"{prefix}.{cluster}": Value(number_value=size) for cluster, size in sizes.items()}
    part = envoy.Runtime(layer=Struct(fields=fields))
    needs = frozenset(cluster for cluster, size in sizes.items() if size)
    return Weights(encode(part), needs)
