"""What no node of ours can honour is refused when it is written: the node agent's own rules, with the value in the cause."""

import re
from collections.abc import Iterator
from typing import Any

from serving.embedded.apiserver import status_errors
from serving.embedded.kubelet.pod import rules
from serving.errors import Cause
from serving.objects import Object

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]+)\]")
_NOT_YET = {"name": "", "namespace": "", "uid": ""}
"""Of a template's Pods; a fieldRef may name them."""


def pod_check(template: Object, path: str) -> Iterator[Cause]:
    """Yield what a Pod, or the Pods of a template, ask for in vain; `path` is that of the spec."""
    pod = {**template, "metadata": {**_NOT_YET, **(template.get("metadata") or {})}}
    whole = path.removesuffix("spec")
    for cause in rules.refusals(pod):
        yield status_errors.invalid(whole + cause.field, _at(template, cause.field), cause.message)


def _at(value: Any, path: str) -> Any:
    for name, key in _STEP.findall(path):
        if isinstance(value, list) and key:
            value = value[int(key)]
        elif isinstance(value, dict):
            value = value.get(name or key)
    return value
