"""The requests of a trial: from a template, a recording, generated chats, a locustfile, or the model's
metadata. Pure.

The metadata is the Open Inference Protocol's: GET /v2/models/NAME, with names, datatypes and shapes of the
inputs.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, get_args

from serving.errors import Permanent
from serving.resources.tuning.load import ExperimentLoad, RequestTemplate
from tuner.load.generated_bodies import bodies
from tuner.load.generated_chats import chats
from tuner.load.plan import LoadPlan, LoadRequest

_PARAMETER = re.compile(r"(\$?)\$\{([^}]*)\}")
_METHODS = get_args(RequestTemplate.model_fields["method"].annotation)
_REQUEST_TARGET = re.compile(r"/[\x21-\x7e]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
"""RFC 9110: a request target has no blanks, a header value has no line breaks."""
_FIELDS = {"method", "path", "headers", "body", "at"}


def plan(
    load: ExperimentLoad,
    description: Mapping[str, Any] | None,
    model_name: str,
    *,
    parameters: Mapping[str, str] | None = None,
    recorded: str | None = None,
    locustfile: str | None = None,
    seed: int = 0,
) -> LoadPlan:
    """Return the requests and their timing.

    Args:
        load: of the trial.
        description: the model's metadata, if `needs_description`.
        model_name: the model's name in requests.
        parameters: value of each parameter that a template may name, in addition to `model`: `batch` (items
            in one request) and the settings of the spec.
        recorded: the text of the ConfigMap's key that `load.requests` names.
        locustfile: the text of the ConfigMap's key that `load.locustfile` names.
        seed: of arrivals and generated values.

    Raises:
        Permanent: `LoadFailed`, with field (or line), rule and value.
    """
    if load.locustfile is not None:
        if load.mode == "open":
            raise _invalid(
                "load.mode",
                "must be closed with a locustfile, as its users time their requests themselves",
                "open",
            )
        return LoadPlan(load.mode, (), seed, locustfile or "")
    if load.requests is not None:
        requests = read_recorded(recorded or "")
    elif load.chat is not None:
        requests = chats(load.chat, model_name, seed)
    elif load.request_template is not None:
        requests = (templated(load.request_template, {"model": model_name, **(parameters or {})}),)
    else:
        batch = (parameters or {}).get("batch", "1")
        requests = random_requests(description, model_name, batch=int(batch), seed=seed)
    return LoadPlan(load.mode, requests, seed)


def needs_description(load: ExperimentLoad) -> bool:
    """Return whether the load names no source of requests, so that the model's metadata generates them."""
    return (load.locustfile, load.requests, load.request_template, load.chat) == (None,) * 4


def templated(template: RequestTemplate, parameters: Mapping[str, str]) -> LoadRequest:
    """Return the request of a template with its parameters replaced; `$${` stands for `${`.

    Raises:
        Permanent: `LoadFailed`, an unknown parameter, or not a valid HTTP request.
    """
    where = "load.requestTemplate"

    def fill(field: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1]:
                return match[0][1:]
            if match[2] not in parameters:
                known = ", ".join(sorted(parameters))
                raise _invalid(f"{where}.{field}", f"${{...}} must name one of {known}", match[0])
            return parameters[match[2]]

        return _PARAMETER.sub(value, text)

    headers = {name: fill(f"headers[{name}]", text) for name, text in template.headers.items()}
    path, body = fill("path", template.path), fill("body", template.body)
    return _request(where, template.method, path, headers=headers, body=body.encode(), at=None)


def read_recorded(text: str) -> tuple[LoadRequest, ...]:
    """Return recorded requests: on each line a JSON object with `path` and optional other fields.

    A string body is sent unchanged, any other JSON value as JSON. `at` is in seconds from any origin.

    Raises:
        Permanent: `LoadFailed`, no request, or a line that breaks a rule, with its number.
    """
    requests: list[LoadRequest] = []
    # Not `splitlines`: strings in JSON may contain its other separators, as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            request = _recorded(f"load.requests line {number}", line)
            _check_order(f"load.requests line {number}", requests, request)
            requests.append(request)
    if not requests:
        raise _invalid("load.requests", "must have a request, one JSON object a line", text[:40])
    return tuple(requests)


def _recorded(where: str, line: str) -> LoadRequest:
    """Return the request of one recorded line; errors name the line as `where`."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _invalid(where, f"must be JSON ({error})", line) from error
    if not isinstance(fields, dict):
        raise _invalid(where, "must be a JSON object", line)
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise _invalid(where, f"has only {', '.join(sorted(_FIELDS))}", unknown[0])
    headers, body, at = fields.get("headers", {}), fields.get("body", ""), fields.get("at")
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise _invalid(f"{where}: headers", "must be an object of strings", headers)
    # Not in seconds are infinity, and Unix times in milliseconds.
    if at is not None and (isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < 1e12):
        raise _invalid(f"{where}: at", "must be seconds, 0 or more", at)
    try:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise _invalid(f"{where}: body", f"must be text in Unicode, or JSON ({error})", line) from error
    method, path = fields.get("method", "POST"), fields.get("path")
    return _request(where, method, path, headers=headers, body=content, at=at)


def _check_order(where: str, before: list[LoadRequest], request: LoadRequest) -> None:
    """Raise `LoadFailed` unless all recorded requests have `at`, in ascending order, or none has."""
    if not before:
        return
    if (before[-1].at is None) != (request.at is None):
        raise _invalid(f"{where}: at", "must be in every line or in none", request.at)
    if request.at is not None and before[-1].at is not None and request.at < before[-1].at:
        raise _invalid(f"{where}: at", f"must not be before the line above, {before[-1].at}", request.at)


def random_requests(
    description: Mapping[str, Any] | None, model_name: str, *, batch: int, seed: int
) -> tuple[LoadRequest, ...]:
    """Return inference requests with small random values for the model's inputs.

    `batch` is the number of items in one request.

    Raises:
        Permanent: `LoadFailed`, the metadata has no inputs, or JSON cannot hold them.
    """
    if not description or not description.get("inputs"):
        raise Permanent(
            "LoadFailed",
            f"GET /v2/models/{model_name} has no inputs of the model:"
            " give load.requestTemplate, load.requests or load.locustfile",
        )
    path, headers = f"/v2/models/{model_name}/infer", {"content-type": "application/json"}
    return tuple(
        LoadRequest("POST", path, headers, body)
        for body in bodies(description["inputs"], batch=batch, seed=seed)
    )


def _request(
    where: str, method: object, path: object, *, headers: dict[str, str], body: bytes, at: float | None
) -> LoadRequest:
    if method not in _METHODS:
        raise _invalid(f"{where}: method", f"must be one of {', '.join(_METHODS)}", method)
    if not isinstance(path, str) or path.startswith("//") or not _REQUEST_TARGET.fullmatch(path):
        raise _invalid(f"{where}: path", "must begin with one / and be printable ASCII without blanks", path)
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise _invalid(f"{where}: headers", "must be printable ASCII on one line", f"{name}: {value}")
        if name.lower() in {"content-length", "transfer-encoding"}:
            raise _invalid(f"{where}: headers", "must not include a header derived from the body", name)
    content = _json(body)
    if content is not None and not any(name.lower() == "content-type" for name in headers):
        headers = {**headers, "content-type": "application/json"}
    # OpenAI's /completions and /chat/completions.
    is_completion = path.partition("?")[0].endswith("/completions")
    stream = is_completion and isinstance(content, dict) and content.get("stream") is True
    return LoadRequest(str(method), path, headers, body, None if at is None else float(at), stream)


def _json(body: bytes) -> Any:
    """Return the parsed body; None if it is empty or no JSON."""
    try:
        return json.loads(body) if body else None
    except (ValueError, RecursionError):
        return None


def _invalid(field: str, rule: str, value: object) -> Permanent:
    return Permanent("LoadFailed", f"{field}: {rule}, not {json.dumps(value, default=str)[:200]}")
