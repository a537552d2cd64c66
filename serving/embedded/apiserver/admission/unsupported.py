"""Reports the fields of a Pod that the kubelet does not support (`pod_spec.rules`), with their values."""

import re
from collections.abc import Iterator
from typing import Any

from serving.embedded.apiserver import status_errors
from serving.embedded.pod_spec import rules
from serving.errors import Cause
from serving.objects import Object

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]+)\]")
"""A step of a field's path: `.NAME`, or `[KEY]` with the index of an item or the key of a map."""
_TEMPLATE_METADATA = {"name": "", "uid": ""}
"""Placeholders for metadata that a fieldRef may name, and that a template lacks: its Pods get the values."""


def pod_check(template: Object, namespace: str, path: str) -> Iterator[Cause]:
    """Yield the unsupported fields of a Pod or a Pod template.

    Args:
        template: the Pod or the template; a template may lack metadata.
        namespace: of the Pods.
        path: of the spec in the object that has the template: `spec` or `spec.template.spec`.
    """
    meta = {**_TEMPLATE_METADATA, **(template.get("metadata") or {}), "namespace": namespace}
    pod = {**template, "metadata": meta}
    prefix = path.removesuffix("spec")  # the fields of the causes begin with `spec`
    for cause in rules.refusals(pod):
        yield status_errors.invalid(prefix + cause.field, _value_at(template, cause.field), cause.message)


def _value_at(value: Any, path: str) -> Any:
    """Return the part of `value` at a path such as `spec.containers[0].stdin`; None if a map lacks it."""
    for name, key in _STEP.findall(path):
        if isinstance(value, list) and key:
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value.get(name or key)
    return value
