"""Policies for the contents of model versions: a version that violates one is Blocked, and its replicas stop.

There is one policy for the installation (the settings `models.policy`) and one for each Namespace (its
annotations). A version must satisfy both. A policy that cannot be understood blocks every version to which
it applies, and stops no replicas (`version.must_stop`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.resources import names
from serving.resources.kubernetes.conditions import StatusReason

NO_CODE = "noCode"
"""No file may have code."""
SIGNED = "signed"
"""One of the policy's keys must have signed the image."""
RULES = (NO_CODE, SIGNED)
POLICY_INVALID = "PolicyInvalid"
"""Reason of a version that a policy with an unknown rule, or without readable keys, blocks."""
_NAMED_FILES = 3


@dataclass(frozen=True)
class ModelPolicy:
    """The rules that the settings, or one Namespace, set for model versions."""

    place: str
    """The settings or the Namespace, for messages, such as `Namespace team`."""
    rules: frozenset[str] = frozenset()
    """Names of rules; a name that is not in `RULES` makes the policy invalid."""
    keys: frozenset[str] = frozenset()
    """Fingerprints of the public keys of the rule `signed`."""
    problem: str = ""
    """Why the keys cannot be read, which only matters to the rule `signed`."""


@dataclass(frozen=True)
class Examination:
    """An examination of a version's image by this process."""

    keys: frozenset[str]
    """Fingerprints of the keys whose signatures were looked for."""
    problem: str = ""
    """Why it could not be completed; empty if it was."""


def rules_of(namespace: Mapping[str, Any]) -> frozenset[str]:
    """Return the rules that a Namespace names in its annotation."""
    text = (namespace["metadata"].get("annotations") or {}).get(names.MODEL_POLICY_ANNOTATION, "")
    return frozenset(filter(None, (rule.strip() for rule in text.split(","))))


def is_unexamined(
    policies: Iterable[ModelPolicy], status: Mapping[str, Any], examination: Examination | None
) -> bool:
    """Whether the image must be examined before the policies can be applied: for code, or for signatures.

    Args:
        policies: the policies to apply.
        status: the version's status, which has `contents` and `signedBy` once the image was examined.
        examination: the last one by this process; None if there is none, or a failed one is to be repeated.
    """
    last = examination or Examination(frozenset())
    # A policy that a known signature satisfies needs no search for the others of its keys.
    unchecked_keys = [
        policy.keys - last.keys
        for policy in policies
        if SIGNED in policy.rules and policy.keys.isdisjoint(status.get("signedBy") or [])
    ]
    return any(unchecked_keys) or ("contents" not in status and not last.problem)


def violation(
    policies: Iterable[ModelPolicy], status: Mapping[str, Any], problem: str = ""
) -> StatusReason | None:
    """Return why the policies block a version with this status, or None: the reason of the first violation,
    and the messages of all.

    Args:
        policies: all must be satisfied.
        status: has `contents` and `signedBy`.
        problem: why the image could not be examined; empty if it was.
    """
    violations = [reason for policy in policies for reason in _violations(policy, status, problem)]
    if not violations:
        return None
    # An invalid policy keeps the serving replicas, but not those of a version that violates a valid one.
    first = next((each for each in violations if each.reason != POLICY_INVALID), violations[0])
    return StatusReason(first.reason, "; ".join(each.message for each in violations))


def _violations(policy: ModelPolicy, status: Mapping[str, Any], problem: str) -> Sequence[StatusReason]:
    if unknown := sorted(policy.rules.difference(RULES)):
        message = (
            f"{policy.place}: unknown rule {', '.join(map(repr, unknown))}; the rules are noCode and signed"
        )
        return [StatusReason(POLICY_INVALID, message)]
    violations = []
    keys_are_unreadable = SIGNED in policy.rules and bool(policy.problem)
    if keys_are_unreadable:
        violations.append(StatusReason(POLICY_INVALID, f"{policy.place}: {policy.problem}"))
    if NO_CODE in policy.rules and (message := _code_violation(status.get("contents"), problem)):
        violations.append(StatusReason("ContainsCode", f"{message} (rule noCode of {policy.place})"))
    if (
        SIGNED in policy.rules
        and not keys_are_unreadable
        and (message := _signature_violation(policy, status.get("signedBy") or [], problem))
    ):
        violations.append(StatusReason("NotSigned", f"{message} (rule signed of {policy.place})"))
    return violations


def _code_violation(contents: Mapping[str, Any] | None, problem: str) -> str:
    """Return why the contents break the rule; empty if they do not."""
    if contents is None:
        return f"the files are not examined yet: {problem}".removesuffix(": ")
    if not contents["containsCode"]:
        return ""
    files = contents.get("files") or []
    verb = "contain" if len(files) > 1 else "contains"
    return f"{format_files(files)} {verb} code; allowed are safetensors, ONNX, skops, NumPy and text"


def format_files(files: Sequence[Mapping[str, Any]]) -> str:
    """Return files with code for messages: `model.joblib (Pickle), hooks.py (Python) and 2 more`."""
    named = ", ".join(f"{file['path']} ({file['format']})" for file in files[:_NAMED_FILES])
    return f"{named} and {len(files) - _NAMED_FILES} more" if len(files) > _NAMED_FILES else named


def _signature_violation(policy: ModelPolicy, signed_by: Sequence[str], problem: str) -> str:
    """Return why the signatures break the rule; empty if they do not."""
    if not policy.keys:
        return "there is no public key to check signatures with"
    if not policy.keys.isdisjoint(signed_by):
        return ""
    keys = f"{len(policy.keys)} trusted key" + ("s" if len(policy.keys) > 1 else "")
    return f"the image has no signature by one of {keys}: {problem}".removesuffix(": ")
