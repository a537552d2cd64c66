"""The kinds: their groups, plurals, short names, scopes and subresources."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from serving import errors

GROUP = "slipway.dev"
VERSION = "v1alpha1"
SEGMENT_RULE = (
    "must be one segment of a path: not empty, '.' or '..', and without '/', '\\', '%', '?', '#', white space"
    " and control characters"
)
_NOT_A_SEGMENT = re.compile(r"\.{0,2}|.*[/\\%?#\s\x00-\x1f\x7f-\x9f\ud800-\udfff].*", re.DOTALL)


@dataclass(frozen=True)
class ScaleSubresource:
    """The fields of an object that its scale subresource shows; the desired count is `spec.replicas`."""

    current: str = "replicas"
    """Name of the field of the status with the current count."""
    has_selector_text: bool = False
    """Whether the selector of the Pods is the text `status.selector`, and not the object `spec.selector`."""


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind, as discovery describes it; a singleton that is compared by identity."""

    group: str
    version: str
    kind: str
    plural: str
    short: tuple[str, ...] = ()
    """Short names for commands, such as `po`."""
    namespaced: bool = True
    status: bool = True
    """Whether the kind has a status subresource."""
    scale: ScaleSubresource | None = None
    """None for a kind without a scale subresource."""
    categories: tuple[str, ...] = ()
    not_offered: Mapping[str, str] = field(default_factory=dict)
    """Messages of the embedded server for subresources that the kind lacks and commands ask for, by name."""

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """URL prefix: `/api/v1` or `/apis/group/version`."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

    @property
    def singular(self) -> str:
        return self.kind.lower()

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """URL path of the collection, or of one object. `namespace=None` is all namespaces.

        Raises:
            errors.Invalid: a part breaks `SEGMENT_RULE`, and would make the path that of another object.
        """
        parts = [self.prefix]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", _segment(namespace, "metadata.namespace", self.kind)]
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment(name, "metadata.name", self.kind))
        if subresource is not None:
            parts.append(_segment(subresource, "subresource", self.kind))
        return "/".join(parts)


def check_path(path: str) -> None:
    """Check a path that was composed of names: HTTP clients resolve `..` to the path of another object.

    Raises:
        errors.Invalid: a segment of the path breaks `SEGMENT_RULE`.
    """
    for segment in path.removeprefix("/").removesuffix("/").split("/"):
        _segment(segment, "path", path)


def _segment(text: str, field: str, label: str) -> str:
    """Return a segment of a path as it is, if it keeps `SEGMENT_RULE`.

    `field`, and `label`, which is a kind or a path, are for the message of the error.
    """
    if _NOT_A_SEGMENT.fullmatch(text):
        message = f"Invalid value: {text!r}: {SEGMENT_RULE}"
        cause = errors.Cause(field, message)
        raise errors.Invalid(422, "Invalid", f"{label!r} is invalid: {field}: {message}", (cause,))
    return text


# As on Kubernetes, the category `all` lacks kinds that hold data: `kubectl delete all --all` spares models.
MODEL = Kind(GROUP, VERSION, "Model", "models", ("mo",), categories=("slipway",))
MODEL_VERSION = Kind(GROUP, VERSION, "ModelVersion", "modelversions", ("mv",), categories=("slipway",))
INFERENCE = Kind(
    GROUP,
    VERSION,
    "Inference",
    "inferences",
    ("inf",),
    categories=("all", "slipway"),
    not_offered={
        "scale": (
            "an Inference has no scale: set spec.predictors[].autoScale.minReplicas and maxReplicas, both to "
            "one number for a fixed count"
        )
    },
)
ROUTE = Kind(GROUP, VERSION, "Route", "routes", categories=("all", "slipway"))
AUTOSCALER = Kind(
    GROUP,
    VERSION,
    "Autoscaler",
    "autoscalers",
    ("as",),
    scale=ScaleSubresource("currentReplicas", has_selector_text=True),
    categories=("all", "slipway"),
)
PROFILING_EXPERIMENT = Kind(
    GROUP, VERSION, "ProfilingExperiment", "profilingexperiments", ("pe",), categories=("all", "slipway")
)
TRIAL = Kind(GROUP, VERSION, "Trial", "trials", categories=("all", "slipway"))
CAPACITY_PROFILE = Kind(
    GROUP, VERSION, "CapacityProfile", "capacityprofiles", ("cap",), status=False, categories=("slipway",)
)

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", ("ns",), namespaced=False)
SERVICE = Kind("", "v1", "Service", "services", ("svc",), categories=("all",))
POD = Kind("", "v1", "Pod", "pods", ("po",), categories=("all",))
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ("cm",), status=False)
SECRET = Kind("", "v1", "Secret", "secrets", status=False)
EVENT_V1 = Kind("", "v1", "Event", "events", ("ev",), status=False)
DEPLOYMENT = Kind(
    "apps", "v1", "Deployment", "deployments", ("deploy",), scale=ScaleSubresource(), categories=("all",)
)
JOB = Kind("batch", "v1", "Job", "jobs", categories=("all",))
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", status=False)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", status=False)
NODE = Kind("", "v1", "Node", "nodes", ("no",), namespaced=False, status=False)
"""Not stored by the embedded server, which describes its own machine."""
RESOURCE_CLAIM_TEMPLATE = Kind(
    "resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", status=False
)
"""On clusters with dynamic resource allocation; the embedded server has no such kind."""
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", ("pdb",))
"""On clusters; the embedded server, whose one node is never drained, has no such kind."""
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", ("ds",))
"""On clusters; the embedded server, which has one node, has no object of it."""

OWN: tuple[Kind, ...] = (
    MODEL,
    MODEL_VERSION,
    INFERENCE,
    ROUTE,
    AUTOSCALER,
    PROFILING_EXPERIMENT,
    TRIAL,
    CAPACITY_PROFILE,
)
BUILTIN: tuple[Kind, ...] = (
    NAMESPACE,
    SERVICE,
    POD,
    CONFIG_MAP,
    SECRET,
    EVENT_V1,
    DEPLOYMENT,
    JOB,
    ENDPOINT_SLICE,
    LEASE,
)
"""Kinds of Kubernetes that the embedded server stores."""
ALL: tuple[Kind, ...] = OWN + BUILTIN


def find(word: str, kinds: Iterable[Kind] = ALL) -> Kind | None:
    """Find a kind by plural, singular, short name or `plural.group`, ignoring case; None if there is none."""
    word = word.lower()
    for kind in kinds:
        if word in (kind.plural, kind.singular, *kind.short, f"{kind.plural}.{kind.group}"):
            return kind
    return None


def of(api_version: str, kind: str) -> Kind | None:
    """Find a kind of `ALL` by the two fields that every manifest has; None if there is none."""
    return next((k for k in ALL if k.api_version == api_version and k.kind == kind), None)


@dataclass(frozen=True)
class OptionalKind:
    """A namespaced kind of another project, which a cluster serves in one of `versions`, or not at all."""

    group: str
    versions: tuple[str, ...]
    """Versions that the readers of its objects support, the preferred one first."""
    kind: str
    plural: str

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}"

    def at(self, version: str) -> Kind:
        """Return the kind in one version; always the same object, as kinds are compared by identity."""
        return _at(self, version)


@cache
def _at(optional: OptionalKind, version: str) -> Kind:
    known = of(f"{optional.group}/{version}", optional.kind)
    return known or Kind(optional.group, version, optional.kind, optional.plural)
