"""Valid objects of every kind, and strategies for nearly valid ones with wrong types and odd values."""

from typing import Any

from hypothesis import strategies as st

from serving.embedded.apiserver.schema import schemas
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.objects.stored_kinds import STORED_KINDS

ODD_TEXT = (
    "",
    "a",
    "A B",
    "a/b",
    "x" * 300,
    "ä",
    "\x00",
    "-1",
    "50%",
    "100m",
    "\ud7ff",
    "2026-01-01T00:00:00Z",
    "Zg==",
)
ODD_NUMBERS = (0, 1, -1, 2, 65536, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**30, 0.5, 1e308)

odd_scalars = st.one_of(st.none(), st.booleans(), st.sampled_from(ODD_NUMBERS), st.sampled_from(ODD_TEXT))
odd = st.one_of(
    odd_scalars,
    st.lists(odd_scalars, max_size=2),
    st.dictionaries(st.sampled_from(ODD_TEXT), odd_scalars, max_size=2),
)


@st.composite
def values(draw: st.DrawFn, schema: dict[str, Any], depth: int = 0) -> Any:
    """Draw a value of a structural schema; one in thirty is of any type."""
    if draw(st.integers(0, 29)) == 0 or depth > 8:
        return draw(odd)
    if schema.get("x-kubernetes-int-or-string"):
        return draw(st.sampled_from((*ODD_NUMBERS, *ODD_TEXT)))
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    kind = schema.get("type", "object")
    if kind == "object":
        return draw(_maps(schema, depth))
    if kind == "array":
        return draw(st.lists(values(schemas.items(schema), depth + 1), max_size=2))
    if kind == "boolean":
        return draw(st.booleans())
    if kind == "integer":
        return draw(st.integers(-1, 3) | st.sampled_from(ODD_NUMBERS))
    if kind == "number":
        return draw(st.sampled_from(ODD_NUMBERS))
    return draw(st.sampled_from(ODD_TEXT))


@st.composite
def _maps(draw: st.DrawFn, schema: dict[str, Any], depth: int) -> Any:
    properties = schema.get("properties") or {}
    if not properties:
        child_schema = schema.get("additionalProperties")
        child_schema = child_schema if isinstance(child_schema, dict) else {"type": "string"}
        return draw(st.dictionaries(st.sampled_from(ODD_TEXT), values(child_schema, depth + 1), max_size=2))
    required = [name for name in schema.get("required") or () if draw(st.integers(0, 19))]
    optional = [name for name in properties if name not in required]
    chosen = draw(st.lists(st.sampled_from(optional), max_size=3, unique=True)) if optional else []
    return {name: draw(values(properties[name], depth + 1)) for name in (*required, *chosen)}


@st.composite
def objects(draw: st.DrawFn, kind: Kind, base: dict[str, Any]) -> Any:
    """Draw a valid object of the kind with some parts replaced; rarely no object at all."""
    return draw(_grafted(base, STORED_KINDS.schema(kind), 0))


@st.composite
def _grafted(draw: st.DrawFn, base: Any, schema: dict[str, Any], depth: int) -> Any:
    """Draw the value with one or two parts replaced or added, at any depth."""
    if isinstance(base, dict) and depth < 8 and draw(st.integers(0, 7)):
        properties = list(schema.get("properties") or {})
        grafted = dict(base)
        for _ in range(draw(st.integers(1, 2))):
            names = sorted({*properties, *base})
            name = draw(st.sampled_from(names)) if names else "a"
            child_schema = schemas.child(schema, name) or schemas.ANY
            if name in base:
                grafted[name] = draw(_grafted(base[name], child_schema, depth + 1))
            else:
                grafted[name] = draw(values(child_schema, depth + 1))
        return grafted
    if isinstance(base, list) and base and draw(st.integers(0, 3)):
        index = draw(st.integers(0, len(base) - 1))
        return [
            *base[:index],
            draw(_grafted(base[index], schemas.items(schema), depth + 1)),
            *base[index + 1 :],
        ]
    return draw(values(schema, depth + 1))


_CONTAINER: Object = {
    "name": "main",
    "image": "web:1",
    "command": ["a"],
    "args": ["b"],
    "env": [
        {"name": "A", "value": "b"},
        {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
    "ports": [{"name": "http", "containerPort": 80}],
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
    "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
    "livenessProbe": {"exec": {"command": ["a"]}},
    "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "securityContext": {"runAsNonRoot": True},
}
_POD: Object = {
    "containers": [_CONTAINER],
    "initContainers": [{**_CONTAINER, "name": "init"}],
    "tolerations": [{"key": "a"}],
    "volumes": [
        {"name": "v", "emptyDir": {}},
        {"name": "w", "hostPath": {"path": "/x"}},
        {"name": "c", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
    ],
}
_SELECTOR = {
    "matchLabels": {"app": "w"},
    "matchExpressions": [{"key": "app", "operator": "In", "values": ["w"]}],
}
_PREDICTOR = {
    "name": "stable",
    "modelVersion": "v1",
    "resources": {"cpu": "1"},
    "autoScale": {"maxReplicas": 2},
}
_PARTS: dict[Kind, Object] = {
    kinds.MODEL: {"spec": {"description": "x"}},
    kinds.MODEL_VERSION: {"spec": {"modelName": "a", "source": {"path": "/a"}}},
    kinds.INFERENCE: {"spec": {"framework": "sklearn", "predictors": [_PREDICTOR]}},
    kinds.ROUTE: {"spec": {"inference": "a"}},
    kinds.AUTOSCALER: {"spec": {"scaleTargetRef": {"name": "a"}}},
    kinds.PROFILING_EXPERIMENT: {
        "spec": {
            "target": {"inference": "a"},
            "tunableParameters": [
                {"category": "env", "parameters": [{"name": "A", "feasibleSpace": {"list": ["1", "2"]}}]},
            ],
        }
    },
    kinds.TRIAL: {
        "spec": {
            "experiment": "e",
            "number": 1,
            "template": {"spec": {}},
            "modelName": "m",
            "settings": [{"category": "env", "name": "A", "value": "1"}],
        }
    },
    kinds.CAPACITY_PROFILE: {
        "spec": {
            "modelDigest": "sha256:0",
            "points": [{"level": 1, "throughput": 2}],
        }
    },
    kinds.NAMESPACE: {},
    kinds.SERVICE: {
        "spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}], "selector": {"a": "b"}}
    },
    kinds.POD: {"spec": {**_POD, "nodeName": "local"}},
    kinds.CONFIG_MAP: {"data": {"a": "b"}, "binaryData": {"c": "Zg=="}},
    kinds.SECRET: {"data": {"a": "Yg=="}, "stringData": {"c": "d"}},
    kinds.EVENT_V1: {
        "involvedObject": {"kind": "Job", "name": "a", "namespace": "default"},
        "reason": "Done",
        "series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00Z"},
    },
    kinds.DEPLOYMENT: {
        "spec": {
            "replicas": 0,
            "selector": _SELECTOR,
            "strategy": {"rollingUpdate": {"maxSurge": 1}},
            "template": {"metadata": {"labels": {"app": "w"}}, "spec": _POD},
        }
    },
    kinds.JOB: {"spec": {"suspend": True, "template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
    kinds.ENDPOINT_SLICE: {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.77.0.1"], "conditions": {"ready": True}}],
        "ports": [{"port": 1, "name": "a"}],
    },
    kinds.LEASE: {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 1}},
}
_META: Object = {"labels": {"a": "b"}, "annotations": {"a": "b"}}


def good(kind: Kind, name: str = "a", **meta: Any) -> Object:
    """Return a valid object of the kind with a value in every interesting place."""
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **_META, **meta}}
    return {**head, **_PARTS[kind]}


DIRECTIVES = (
    "$patch",
    "$retainKeys",
    "$setElementOrder/finalizers",
    "$deleteFromPrimitiveList/finalizers",
    "$setElementOrder/ownerReferences",
    "$setElementOrder/containers",
)
_POINTERS = (
    "",
    "/",
    "/metadata",
    "/metadata/name",
    "/spec",
    "/spec/x",
    "/metadata/finalizers/0",
    "/metadata/finalizers/-",
    "/metadata/labels/a~1b",
    "/a/b",
    "x",
    "/spec/template/spec/containers/0",
    "/data",
    "/metadata/annotations",
)
operations = st.fixed_dictionaries(
    {
        "op": st.sampled_from(("add", "remove", "replace", "move", "copy", "test", "x")),
        "path": st.sampled_from(_POINTERS),
    },
    optional={"value": odd, "from": st.sampled_from(_POINTERS) | odd},
)
json_patches = st.lists(operations | odd, max_size=4) | odd


@st.composite
def strategic_patches(draw: st.DrawFn, kind: Kind, base: Object) -> Any:
    """Draw a strategic merge patch with directives of any type."""
    patch = draw(objects(kind, base))
    extra = draw(st.dictionaries(st.sampled_from(DIRECTIVES), odd | st.lists(odd, max_size=2), max_size=2))
    if not isinstance(patch, dict):
        return patch
    if isinstance(patch.get("metadata"), dict) and draw(st.booleans()):
        return {**patch, "metadata": {**patch["metadata"], **extra}}
    return {**patch, **extra}
