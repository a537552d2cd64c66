"""Definitions of custom kinds: schemas, printer columns, and their export as CustomResourceDefinitions."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from serving.resources import kinds
from serving.resources.base import Base, structural


@dataclass(frozen=True)
class PrinterColumn:
    """A column of `kubectl get`; `path` is a JSONPath as in a CRD."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class Definition:
    """A custom kind with its schema and columns."""

    kind: kinds.Kind
    description: str
    spec: type[Base]
    status: type[Base] | None
    """None for a kind without a status subresource."""
    columns: tuple[PrinterColumn, ...]
    created_in_order: bool = False
    """Whether the embedded API gives no object an earlier creation time than an older object has, also after
    the clock was set back."""


@cache
def schema(definition: Definition) -> dict[str, Any]:
    """Return the structural schema of the whole object, as in a CRD. Callers must not change it."""
    spec = structural(definition.spec)
    status = {"status": structural(definition.status)} if definition.status else {}
    spec.setdefault("description", f"{definition.kind.kind}Spec.")
    return {
        "type": "object",
        "description": definition.description,
        "required": ["spec"] if spec.get("required") else [],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            **status,
        },
    }


def subresources(kind: kinds.Kind) -> dict[str, Any]:
    """Return the subresources of a kind with a status, as a CRD describes them."""
    if kind.scale is None:
        return {"status": {}}
    selector = {"labelSelectorPath": ".status.selector"} if kind.scale.has_selector_text else {}
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": f".status.{kind.scale.current}",
        **selector,
    }
    return {"status": {}, "scale": scale}


def crd(definition: Definition) -> dict[str, Any]:
    """Return the CustomResourceDefinition for a cluster."""
    kind = definition.kind
    body = {k: v for k, v in schema(definition).items() if not (k == "required" and not v)}
    columns = [
        {"name": c.name, "jsonPath": c.path, "type": c.type}
        | ({"priority": c.priority} if c.priority else {})
        for c in definition.columns
    ]
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.singular,
        "categories": list(kind.categories),
    }
    if kind.short:
        names["shortNames"] = list(kind.short)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    **({"subresources": subresources(kind)} if kind.status else {}),
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": body},
                }
            ],
        },
    }
