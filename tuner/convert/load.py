"""Converts Morphling's clientTemplate and requestTemplate into a load.

Morphling's client reads environment variables; their defaults are in
pkg/client_locust/morphling_client_locust.py of github.com/kubedl-io/morphling.
"""

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from pydantic import ValidationError

from serving.errors import UserError
from serving.objects import Object
from serving.resources.tuning.load import RequestTemplate
from tuner.convert.manifest_reader import Notes, items, mapping, shown, text

_DRIVES = "is left out: Slipway generates the load of spec.load itself"
_READ_BY = "is left out: only Morphling's client reads it"
_USERS, _SECONDS, _FAILED = "LOCUST_NUM_USERS", "LOCUST_RUN_TIME", "FAIL_RATIO"
_DEFAULTS = {_USERS: "10", _SECONDS: "15", _FAILED: "0.2"}
_VARIABLES: dict[str, str] = {
    "LOCUST_SPAWN_RATE": "is left out: all users start at once, and load.warmupSeconds is not measured",
    "LOCUST_LOCUSTFILE": "is left out: put the file into a ConfigMap, and set load.locustfile (name, key)",
    "LOCUST_METRICS_EXPORT": "is left out: the status of each Trial has the results",
    "LOCUST_LOGLEVEL": "is left out: only errors of the load generator are logged",
    "PRINTLOG": "is left out: the status of each Trial has the results",
}
_FORM = re.compile(r"([0-9]{1,9})(s|m|h)?")
_UNITS = {None: 1, "s": 1, "m": 60, "h": 3600}


def client(value: Any, path: str, notes: Notes) -> tuple[Object, list[Object]]:
    """Return `spec.load` and `spec.constraints` of a client's Job.

    Raises:
        UserError: with the field.
    """
    variables: dict[str, tuple[str, str]] = {}
    job = mapping(value, path)
    if job:
        notes.add(path, _DRIVES)
    spec = mapping(job.get("spec"), f"{path}.spec")
    template = mapping(spec.get("template"), f"{path}.spec.template")
    where = f"{path}.spec.template.spec"
    pod = mapping(template.get("spec"), where)
    for i, item in enumerate(items(pod.get("containers"), f"{where}.containers")):
        here = f"{where}.containers[{i}]"
        container = mapping(item, here)
        for j, entry in enumerate(items(container.get("env"), f"{here}.env")):
            variable = mapping(entry, f"{here}.env[{j}]")
            name = text(variable.get("name"), f"{here}.env[{j}].name")
            if name in _DEFAULTS:
                variables[name] = (
                    text(variable.get("value"), f"{here}.env[{j}].value"),
                    f"{here}.env[{j}].value",
                )
            else:
                notes.add(f"{here}.env[{j}]", f"{name or 'a variable'} {_VARIABLES.get(name, _READ_BY)}")
            if name.startswith("LOCUST_"):
                variables.setdefault("", ("", ""))
    if not variables:
        return {}, []
    settings = {name: variables.get(name, (default, where)) for name, default in _DEFAULTS.items()}
    load = {
        "mode": "closed",
        "levels": [_users(*settings[_USERS])],
        "windowSeconds": _seconds(*settings[_SECONDS]),
    }
    return load, [{"metric": "errorRate", "atMost": _percent(*settings[_FAILED])}]


def request(value: Any, path: str, notes: Notes) -> Object:
    """Return `spec.load.requestTemplate`; empty if it has no path.

    Raises:
        UserError: it is not text.
    """
    given = text(value, path)
    if not given:
        return {}
    try:
        body = json.loads(given)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict) and "path" in body:
        payload = body.get("body", "")
        body["body"] = payload if isinstance(payload, str) else json.dumps(payload)
        try:
            RequestTemplate.model_validate(body)
        except ValidationError:
            pass
        else:
            return body
    notes.add(
        path,
        f"{shown(given)} is left out: only Morphling's client knows its format; write load.requestTemplate"
        " with method, path, headers and body, or Slipway generates requests from the model's metadata",
    )
    return {}


def _users(value: str, path: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}", value) or int(value) == 0:
        raise UserError(f"{path}: must be a whole number of users above 0, and is {shown(value)}")
    return str(int(value))


def _seconds(value: str, path: str) -> int:
    match = _FORM.fullmatch(value)
    if match is None or int(match[1]) == 0:
        raise UserError(f"{path}: must be a time such as 15, 15s or 1m, and is {shown(value)}")
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > 3600:
        raise UserError(f"{path}: must be at most an hour, and is {shown(value)}")
    return seconds


def _percent(value: str, path: str) -> str:
    try:
        share = Decimal(value)
    except InvalidOperation as error:
        raise UserError(f"{path}: must be a share from 0 to 1, and is {shown(value)}") from error
    if not share.is_finite() or not 0 <= share <= 1:
        raise UserError(f"{path}: must be a share from 0 to 1, and is {shown(value)}")
    digits = f"{math.floor(share * 10_000_000) / 100_000:.5f}".rstrip("0").rstrip(".")
    return f"{digits}%"
