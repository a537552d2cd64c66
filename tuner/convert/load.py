"""Converts Morphling's clientTemplate and requestTemplate into a load.

Morphling's client reads environment variables; their defaults are in
pkg/client_locust/morphling_client_locust.py of github.com/kubedl-io/morphling.
"""

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from pydantic import ValidationError

from serving.errors import UserError
from serving.objects import Object
from serving.resources.tuning.load import RequestTemplate
from tuner.convert.manifest_reader import Notes, items, mapping, shown, text

_CLIENT_ADVICE = "is left out: Slipway generates the load of spec.load itself"
_VARIABLE_ADVICE = "is left out: only Morphling's client reads it"
_USERS, _RUN_TIME, _FAILED_SHARE = "LOCUST_NUM_USERS", "LOCUST_RUN_TIME", "FAIL_RATIO"
_DEFAULTS = {_USERS: "10", _RUN_TIME: "15", _FAILED_SHARE: "0.2"}
"""The variables that are converted, with the defaults of Morphling's client: users, seconds, and a share."""
_ADVICE_BY_VARIABLE: dict[str, str] = {
    "LOCUST_SPAWN_RATE": "is left out: all users start at once, and load.warmupSeconds is not measured",
    "LOCUST_LOCUSTFILE": "is left out: put the file into a ConfigMap, and set load.locustfile (name, key)",
    "LOCUST_METRICS_EXPORT": "is left out: the status of each Trial has the results",
    "LOCUST_LOGLEVEL": "is left out: only errors of the load generator are logged",
    "PRINTLOG": "is left out: the status of each Trial has the results",
}
_RUN_TIME_FORM = re.compile(r"([0-9]{1,9})(s|m|h)?")
_UNIT_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}
_LONGEST_WINDOW_SECONDS = 3600
"""The maximum of `load.windowSeconds`."""
_PERCENT_DIGITS = 5
"""Decimal places of a converted percentage."""


class _Variable(NamedTuple):
    """A variable of the client's environment: its value, and the value's path in the manifest."""

    value: str
    path: str


def client(value: Any, path: str, notes: Notes) -> tuple[Object, list[Object]]:
    """Return `spec.load` and `spec.constraints` of a client's Job; both are empty if it does not run locust.

    Raises:
        UserError: with the field.
    """
    variables: dict[str, _Variable] = {}
    is_locust = False
    job = mapping(value, path)
    if job:
        notes.add(path, _CLIENT_ADVICE)
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
                value_path = f"{here}.env[{j}].value"
                variables[name] = _Variable(text(variable.get("value"), value_path), value_path)
            else:
                advice = _ADVICE_BY_VARIABLE.get(name, _VARIABLE_ADVICE)
                notes.add(f"{here}.env[{j}]", f"{name or 'a variable'} {advice}")
            is_locust = is_locust or name in _DEFAULTS or name.startswith("LOCUST_")
    if not is_locust:
        return {}, []
    settings = {name: variables.get(name, _Variable(default, where)) for name, default in _DEFAULTS.items()}
    load = {
        "mode": "closed",
        "levels": [_users(settings[_USERS])],
        "windowSeconds": _seconds(settings[_RUN_TIME]),
    }
    return load, [{"metric": "errorRate", "atMost": _percentage(settings[_FAILED_SHARE])}]


def request(value: Any, path: str, notes: Notes) -> Object:
    """Return `spec.load.requestTemplate`; empty, with a note, unless the value is one of Slipway's as JSON.

    Raises:
        UserError: the value is not text.
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
            template = RequestTemplate.model_validate(body)
        except ValidationError:
            pass
        else:
            # With headers as text: the type also takes numbers, which the schema of the API refuses.
            return template.model_dump(by_alias=True, exclude_unset=True)
    notes.add(
        path,
        f"{shown(given)} is left out: only Morphling's client knows its format; write load.requestTemplate"
        " with method, path, headers and body, or Slipway generates requests from the model's metadata",
    )
    return {}


def _users(variable: _Variable) -> str:
    if not re.fullmatch(r"[0-9]{1,9}", variable.value) or int(variable.value) == 0:
        raise UserError(
            f"{variable.path}: must be a whole number of users above 0, and is {shown(variable.value)}"
        )
    return str(int(variable.value))


def _seconds(variable: _Variable) -> int:
    match = _RUN_TIME_FORM.fullmatch(variable.value)
    if match is None or int(match[1]) == 0:
        raise UserError(
            f"{variable.path}: must be a time such as 15, 15s or 1m, and is {shown(variable.value)}"
        )
    seconds = int(match[1]) * _UNIT_SECONDS[match[2]]
    if seconds > _LONGEST_WINDOW_SECONDS:
        raise UserError(f"{variable.path}: must be at most an hour, and is {shown(variable.value)}")
    return seconds


def _percentage(variable: _Variable) -> str:
    """Return a share as a percentage such as `0.5%`, rounded down so that the bound allows no more."""
    message = f"{variable.path}: must be a share from 0 to 1, and is {shown(variable.value)}"
    try:
        share = Decimal(variable.value)
    except InvalidOperation as error:
        raise UserError(message) from error
    if not share.is_finite() or not 0 <= share <= 1:
        raise UserError(message)
    scale = 10**_PERCENT_DIGITS
    percent = math.floor(share * 100 * scale) / scale
    digits = f"{percent:.{_PERCENT_DIGITS}f}".rstrip("0").rstrip(".")
    return f"{digits}%"
