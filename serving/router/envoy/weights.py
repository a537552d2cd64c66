"""Weights as entries of Envoy's runtime, so that a change of weights is not a change of routes.

Envoy reads all of a route configuration again when one route changes, which costs its main thread 0.1 ms for every
service that is stored; an entry of the runtime costs it a microsecond. A key has a digest of the ring's order, so that
weights of one order are never applied to another. Here is nothing about when which file is written: see `order`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from serving.router.envoy import wire
from serving.router.plan.service import Service

LAYER = "weights"
"""Name of the runtime's layer and of its only resource."""
_TYPE = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
_DIGEST_BYTES = 6


@dataclass(frozen=True)
class Weights:
    """One service's: encoded entries, and the clusters that must have endpoints before they hold."""

    entries: bytes
    needs: frozenset[str]


def key_prefix(service: Service) -> str:
    """Return the prefix of the service's keys; empty where its weights are in its route.

    A key is named after a cluster, so a ring with two stretches of one cluster cannot use it; a ring of one cluster
    needs none.
    """
    names = [piece.cluster for piece in service.ring]
    if len(names) < 2 or len(set(names)) < len(names):
        return ""
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{service.namespace}/{service.name}.{digest}"


def weights_of(service: Service) -> Weights:
    """Return what a service with a key prefix has in the runtime."""
    prefix = key_prefix(service)
    values = {f"{prefix}.{piece.cluster}": piece.weight for piece in service.ring}
    needs = frozenset(piece.cluster for piece in service.ring if piece.weight)
    return Weights(wire.encode("Struct", values), needs)


def layer(found: Mapping[str, Weights]) -> bytes:
    """Return the layer, of the entries of all services in the order of their prefixes."""
    entries = b"".join(found[prefix].entries for prefix in sorted(found))
    return wire.encode("Any", {"@type": _TYPE, "name": LAYER, "layer": entries})


def read(values: Mapping[str, int]) -> dict[str, Weights]:
    """Return what a runtime has, by prefix."""
    found: dict[str, dict[str, int]] = {}
    for key, value in values.items():
        prefix = "/".join(key.split("/")[:2]).rpartition(".")[
            0
        ]  # NAMESPACE/NAME.DIGEST.NAMESPACE/SERVICE/PORT
        found.setdefault(prefix, {})[key] = value
    return {
        prefix: Weights(
            wire.encode("Struct", entries),
            frozenset(key.removeprefix(f"{prefix}.") for key, value in entries.items() if value),
        )
        for prefix, entries in found.items()
    }
