"""The defaults and rules of each kind.

`defaults` changes an object in place and is idempotent, so that a second `kubectl apply` changes nothing.
`check` yields the broken rules of a structurally valid object.
"""

from collections.abc import Callable, Iterator

from serving.embedded.apiserver.admission import deployment, job, pod, small_kinds
from serving.errors import Cause
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind

_DEFAULTS: dict[Kind, Callable[[Object], None]] = {
    kinds.DEPLOYMENT: deployment.defaults,
    kinds.JOB: job.defaults,
    kinds.POD: pod.defaults,
    kinds.SERVICE: small_kinds.service_defaults,
    kinds.SECRET: small_kinds.secret_defaults,
    kinds.NAMESPACE: small_kinds.namespace_defaults,
    kinds.EVENT_V1: small_kinds.event_defaults,
}
_CHECKS: dict[Kind, Callable[[Object, Object | None], Iterator[Cause]]] = {
    kinds.DEPLOYMENT: deployment.check,
    kinds.JOB: job.check,
    kinds.POD: pod.check,
    kinds.SERVICE: small_kinds.service_check,
    kinds.SECRET: small_kinds.secret_check,
    kinds.CONFIG_MAP: small_kinds.config_map_check,
    kinds.EVENT_V1: small_kinds.event_check,
    kinds.ENDPOINT_SLICE: small_kinds.endpoint_slice_check,
    kinds.LEASE: small_kinds.lease_check,
}


def ignored_parts(kind: Kind) -> frozenset[str]:
    """Return the top-level members whose changes cannot affect the defaults and rules of this kind.

    A write that changes only these members skips the defaults and rules.
    """
    return frozenset({"metadata"}) if kind == kinds.DEPLOYMENT else frozenset()


def has_defaults(kind: Kind) -> bool:
    return kind in _DEFAULTS


def defaults(kind: Kind, obj: Object) -> None:
    """Set this kind's defaults in place."""
    if kind in _DEFAULTS:
        _DEFAULTS[kind](obj)


def check(kind: Kind, obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the broken rules of this kind; `old` is None on create."""
    if kind in _CHECKS:
        yield from _CHECKS[kind](obj, old)
