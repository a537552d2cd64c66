"""The tree of exceptions.

    SlipwayError
    ├── ApiError                 the API responded with a Status (code, reason, message, details)
    │   ├── NotFound             404
    │   ├── Conflict             409: stale resourceVersion, or an apply conflict
    │   ├── AlreadyExists        409 with reason AlreadyExists
    │   ├── Invalid              422: the object breaks a rule; `causes` name field, rule and value
    │   ├── Gone                 410: this resourceVersion is too old to watch from
    │   ├── Forbidden            401/403
    │   └── Internal             500: the API has failed; retrying can help
    ├── Unavailable              no response from the API or a peer; retrying can help
    │   ├── Busy                 429 or 503: the API refuses requests for `retry_after` seconds
    │   └── Hung                 the API accepts connections and does not answer
    ├── Permanent                retrying cannot help until something is changed; carries a condition reason
    │   └── SpaceInvalid         an invalid search space; names field, rule and value
    ├── Temporary                retrying can help, after `retry_after` seconds
    ├── LeadershipLost           another process is the leader now, or may be: this process must end
    └── UserError                the command line or a file is wrong; the message says what to do
        └── NoApi                no kubeconfig names an API

Only classes that some code catches are here. Adapters map errors of libraries with `raise ... from`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class SlipwayError(Exception):
    """Root of Slipway's exceptions."""


@dataclass(frozen=True)
class Cause:
    """A broken rule, as a StatusCause of the Kubernetes API."""

    field: str
    """JSON path such as `spec.predictors[0].name`."""
    message: str
    """The rule and the value."""
    reason: str = "FieldValueInvalid"
    """Type of the error for programs, such as `FieldValueNotFound`."""


class ApiError(SlipwayError):
    """An error response of the API."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        causes: Sequence[Cause] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.details = dict(details or {})


class NotFound(ApiError):
    """404: there is no such object."""


class Conflict(ApiError):
    """409: another writer was first, or owns the field."""


class AlreadyExists(ApiError):
    """409: create of a name that is taken."""


class Invalid(ApiError):
    """422: the object breaks a rule."""


class Gone(ApiError):
    """410: the resourceVersion is too old; list again."""


class Forbidden(ApiError):
    """401 or 403."""


class Internal(ApiError):
    """500: the API, or a webhook or a database behind it, has failed."""


class Unavailable(SlipwayError):
    """No response; the peer is down, slow or restarting."""


class Busy(Unavailable):
    """429 or 503: the API has not executed the request, and asks for another attempt after `retry_after`
    seconds.
    """

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unreadable(Unavailable):
    """A response that is not the API's, or is longer than the client takes: a watch at the same version may
    have it again, so list again.
    """


class Hung(Unavailable):
    """The API accepts connections and answers no request: its process is stopped, stuck or overloaded."""


class Permanent(SlipwayError):
    """Retrying cannot help; `reason` is the CamelCase condition reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SpaceInvalid(Permanent):
    """An invalid search space; `field` is a JSON path such as `spec.tunableParameters[0]`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__("SpaceInvalid", f"{field}: {message}")
        self.field = field


class Temporary(SlipwayError):
    """Retrying can help, after `retry_after` seconds (None: after the back-off of the reconcile loop).

    `reason` is the CamelCase condition reason.
    """

    def __init__(self, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class LeadershipLost(SlipwayError):
    """The Lease of the leader could not be renewed in time, or another process has it: this one must end."""


class UserError(SlipwayError):
    """The user's request cannot be carried out; the message says what to do."""


class NoApi(UserError):
    """There is no kubeconfig, so there is no API to talk to."""


def place_in_yaml(error: Exception) -> str:
    """Return where a text is not YAML; PyYAML's own message quotes the text, which can be a secret."""
    mark = getattr(error, "problem_mark", None)
    return f"not YAML at line {mark.line + 1}, column {mark.column + 1}" if mark else "not YAML"


_BY_REASON: Mapping[str, type[ApiError]] = {
    "NotFound": NotFound,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Invalid": Invalid,
    "Expired": Gone,
    "Gone": Gone,
    "Forbidden": Forbidden,
    "Unauthorized": Forbidden,
}
_BY_CODE: Mapping[int, type[ApiError]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    500: Internal,
}


_REFUSALS = (400, 403, 422)
"""Status codes that reject one object: it cannot be decoded, or a webhook denies it without a code (400), a
quota, a webhook or a right forbids it, or it breaks a rule."""
NAMESPACE_TERMINATING = "NamespaceTerminating"
"""Reason of the cause of a 403: the namespace is being deleted, and takes no new object."""
_MISFIT = "failed to create typed patch object"
"""Start of kube-apiserver's message for an apply with an unknown field or a field of another type: 500
without a reason (k8s.io/apimachinery/pkg/util/managedfields/internal/structuredmerge.go).
"""


def from_status(code: int, status: Mapping[str, Any]) -> ApiError:
    """Build the exception for a Kubernetes Status: by its reason, else by the code, else `ApiError`."""
    reason = str(status.get("reason", ""))
    if code == 500 and str(status.get("message", "")).startswith(_MISFIT):
        code, reason = 422, "Invalid"
    details = status.get("details") or {}
    causes = [
        Cause(c.get("field", ""), c.get("message", ""), c.get("reason", ""))
        for c in details.get("causes") or []
    ]
    cls = _BY_REASON.get(reason) or _BY_CODE.get(code, ApiError)
    return cls(code, reason, str(status.get("message", f"HTTP {code}")), causes, details)


def is_refusal(error: ApiError) -> bool:
    """Whether the API rejects this object until somebody acts, and may accept others of its namespace."""
    return error.code in _REFUSALS and not is_namespace_terminating(error)


def is_namespace_terminating(error: ApiError) -> bool:
    """Whether the API rejects every new object of the namespace, as the namespace is being deleted."""
    return any(cause.reason == NAMESPACE_TERMINATING for cause in error.causes)
