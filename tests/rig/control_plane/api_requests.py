"""The requests of components to the API, as far as their code names the kind."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from serving.resources import kinds

ROOT = Path(__file__).parents[3]
PACKAGES = {
    "slipway-controllers": ("serving/controllers", "serving/kube", "autoscaler", "tuner"),
    "slipway-gateway": ("serving/router", "serving/kube/events.py"),
}
"""The code whose requests an account sends."""
_VERBS = {
    "of": ("list", "watch"),
    "Informer": ("list", "watch"),
    "get": ("get",),
    "list": ("list",),
    "create": ("create",),
    "update": ("update",),
    "patch": ("patch",),
    "apply": ("create", "patch"),
    "delete": ("delete",),
}
"""By the method of a client, of `Watches` or `Informer`, that has a kind as its argument."""


class CodeRequest(NamedTuple):
    """What RBAC sees of a request."""

    group: str
    resource: str
    """With its subresource, as `routes/status`."""
    verb: str


def of_account(account: str) -> Iterator[CodeRequest]:
    """Yield the requests of an account's components."""
    for package in PACKAGES[account]:
        path = ROOT / package
        for file in [path] if path.is_file() else path.rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call):
                    yield from _of_call(node)


def _of_call(call: ast.Call) -> Iterator[CodeRequest]:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self._cache":
        return  # a read of the process's own copies
    status = method == "apply_status"
    named = [re.fullmatch(r"kinds\.([A-Z_0-9]+)", ast.unparse(argument)) for argument in call.args[:2]]
    constant = next((match[1] for match in named if match), None)
    if constant is None or not (status or method in _VERBS):
        return
    kind: kinds.Kind = getattr(kinds, constant)
    sub = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg == "subresource"}
    resource = "/".join([kind.plural, *(["status"] if status else sub.values())])
    for verb in ("patch",) if status else _VERBS[method]:
        yield CodeRequest(kind.group, resource, verb)
