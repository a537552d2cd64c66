"""What a trial asks: a template, recorded requests, a locustfile, or requests made from the model's own description. Pure.

The description is the Open Inference Protocol's metadata of a model: GET /v2/models/NAME, with the inputs' names, datatypes, shapes.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, get_args

from serving.errors import Permanent
from serving.resources.load import Load, RequestTemplate
from tuner.load.generated_bodies import made
from tuner.load.plan import LoadPlan, LoadRequest

_PARAMETER = re.compile(r"(\$?)\$\{([^}]*)\}")
_METHODS = get_args(RequestTemplate.model_fields["method"].annotation)
_TARGET = re.compile(r"/[^\x00-\x20\x7f]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
"""RFC 9110: a target has no blank, a header's value no line break."""
_FIELDS = {"method", "path", "headers", "body", "at"}


def plan(
    load: Load,
    description: Mapping[str, Any] | None,
    model_name: str,
    *,
    parameters: Mapping[str, str] | None = None,
    recorded: str | None = None,
    locustfile: str | None = None,
    seed: int = 0,
) -> LoadPlan:
    """Return what is sent, and how it is timed.

    Args:
        load: of the trial.
        description: the model's metadata; needed only where `needs_description` says so.
        model_name: as clients of the trial call the model.
        parameters: what `${...}` may name in a template, besides `model`: `batch`, and the settings by their names.
        recorded: the text of `load.requests`.
        locustfile: the text of `load.locustfile`.
        seed: of arrivals, and of values that are made up.

    Raises:
        Permanent: `LoadFailed`, and the message says field (or line), rule and value.
    """
    if load.locustfile is not None:
        if load.mode == "open":
            raise _wrong(
                "load.mode", "must be closed with a locustfile, whose users send when they like", "open"
            )
        return LoadPlan(load.mode, (), seed, locustfile or "")
    if load.requests is not None:
        requests = read_recorded(recorded or "")
    elif load.request_template is not None:
        requests = (templated(load.request_template, {"model": model_name, **(parameters or {})}),)
    else:
        batch = (parameters or {}).get("batch", "1")
        requests = described(description, model_name, batch=int(batch), seed=seed)
    return LoadPlan(load.mode, requests, seed)


def needs_description(load: Load) -> bool:
    """Return whether requests are made from the model's metadata, as the load says none itself."""
    return load.locustfile is None and load.requests is None and load.request_template is None


def templated(template: RequestTemplate, parameters: Mapping[str, str]) -> LoadRequest:
    """Return the request of a template with the parameters put in; `$${` stands for `${`.

    Raises:
        Permanent: `LoadFailed`: an unknown parameter, or a request that HTTP does not have.
    """
    where = "load.requestTemplate"

    def put_in(field: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1]:
                return match[0][1:]
            if match[2] not in parameters:
                known = ", ".join(sorted(parameters))
                raise _wrong(f"{where}.{field}", f"${{...}} must name one of {known}", match[0])
            return parameters[match[2]]

        return _PARAMETER.sub(value, text)

    headers = {name: put_in(f"headers[{name}]", text) for name, text in template.headers.items()}
    path, body = put_in("path", template.path), put_in("body", template.body)
    return _request(where, template.method, path, headers=headers, body=body.encode(), at=None)


def read_recorded(text: str) -> tuple[LoadRequest, ...]:
    """Return recorded requests: one JSON object a line with `path`, and any of `method`, `headers`, `body` and `at`.

    A body is a string, sent as it is, or any other JSON value, sent as JSON. `at` is in seconds, from any beginning.

    Raises:
        Permanent: `LoadFailed`: none, or a line that breaks a rule, by its number.
    """
    found: list[LoadRequest] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            request = _recorded(f"load.requests line {number}", line)
            _in_order(f"load.requests line {number}", found, request)
            found.append(request)
    if not found:
        raise _wrong("load.requests", "must have a request, one JSON object a line", text[:40])
    return tuple(found)


def _recorded(where: str, line: str) -> LoadRequest:
    try:
        said = json.loads(line)
    except ValueError as error:
        raise _wrong(where, f"must be JSON ({error})", line) from error
    if not isinstance(said, dict):
        raise _wrong(where, "must be a JSON object", line)
    unknown = sorted(set(said) - _FIELDS)
    if unknown:
        raise _wrong(where, f"has only {', '.join(sorted(_FIELDS))}", unknown[0])
    headers, body, at = said.get("headers", {}), said.get("body", ""), said.get("at")
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise _wrong(f"{where}: headers", "must be an object of strings", headers)
    if at is not None and (isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < 1e12):
        raise _wrong(f"{where}: at", "must be seconds, 0 or more", at)
    content = body if isinstance(body, str) else json.dumps(body)
    method, path = said.get("method", "POST"), said.get("path")
    return _request(where, method, path, headers=headers, body=content.encode(), at=at)


def _in_order(where: str, before: list[LoadRequest], request: LoadRequest) -> None:
    if not before:
        return
    if (before[-1].at is None) != (request.at is None):
        raise _wrong(f"{where}: at", "must be in every line or in none", request.at)
    if request.at is not None and before[-1].at is not None and request.at < before[-1].at:
        raise _wrong(f"{where}: at", f"must not be before the line above, {before[-1].at}", request.at)


def described(
    description: Mapping[str, Any] | None, model_name: str, *, batch: int, seed: int
) -> tuple[LoadRequest, ...]:
    """Return requests of small random values for the model's inputs; several, so that no cache answers them all.

    Raises:
        Permanent: `LoadFailed`: the model does not say what it takes, or it is nothing that JSON can hold.
    """
    if not description or not description.get("inputs"):
        raise Permanent(
            "LoadFailed",
            f"GET /v2/models/{model_name} does not say what the model takes: give load.requestTemplate, load.requests"
            " or load.locustfile",
        )
    where = "POST", f"/v2/models/{model_name}/infer", {"content-type": "application/json"}
    return tuple(LoadRequest(*where, body) for body in made(description["inputs"], batch=batch, seed=seed))


def _request(
    where: str, method: object, path: object, *, headers: dict[str, str], body: bytes, at: float | None
) -> LoadRequest:
    if method not in _METHODS:
        raise _wrong(f"{where}: method", f"must be one of {', '.join(_METHODS)}", method)
    if not isinstance(path, str) or path.startswith("//") or not _TARGET.fullmatch(path):
        raise _wrong(f"{where}: path", "must begin with one / and have no blank", path)
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise _wrong(f"{where}: headers", "must be printable ASCII on one line", f"{name}: {value}")
        if name.lower() in {"content-length", "transfer-encoding"}:
            raise _wrong(f"{where}: headers", "must not have what follows from the body", name)
    said = _json(body)
    if said is not None and not any(name.lower() == "content-type" for name in headers):
        headers = {**headers, "content-type": "application/json"}
    completes = path.partition("?")[0].endswith("/completions")
    stream = completes and isinstance(said, dict) and said.get("stream") is True
    return LoadRequest(str(method), path, headers, body, None if at is None else float(at), stream)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return None


def _wrong(field: str, rule: str, value: object) -> Permanent:
    return Permanent("LoadFailed", f"{field}: {rule}, not {json.dumps(value, default=str)[:200]}")
