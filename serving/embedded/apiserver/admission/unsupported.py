"""Refuses fields of a Pod that the kubelet does not support, with their values: `pod_spec.rules`."""

import re
from collections.abc import Iterator
from typing import Any

from serving.embedded.apiserver import status_errors
from serving.embedded.pod_spec import rules
from serving.errors import Cause
from serving.objects import Object

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]+)\]")
_TEMPLATE_METADATA = {"name": "", "uid": ""}
"""Metadata that a fieldRef may name, and that a template's Pods get later."""


def pod_check(template: Object, namespace: str, path: str) -> Iterator[Cause]:
    """Yield the unsupported fields of a Pod or a Pod template.

    Args:
        template: with metadata, where it has them, and spec.
        namespace: of the Pods.
        path: of the spec.
    """
    meta = {**_TEMPLATE_METADATA, **(template.get("metadata") or {}), "namespace": namespace}
    pod = {**template, "metadata": meta}
    prefix = path.removesuffix("spec")
    for cause in rules.refusals(pod):
        yield status_errors.invalid(prefix + cause.field, _value_at(template, cause.field), cause.message)


def _value_at(value: Any, path: str) -> Any:
    for name, key in _STEP.findall(path):
        if isinstance(value, list) and key:
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value.get(name or key)
    return value
