"""Defaults and rules of Jobs, as in k8s.io/kubernetes/pkg/{apis,registry}/batch."""

from collections.abc import Iterator

from serving.embedded.apiserver import status_errors
from serving.embedded.apiserver.admission import pod
from serving.errors import Cause
from serving.objects import Object

UID_LABEL, NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_OLD_LABELS = {UID_LABEL: "controller-uid", NAME_LABEL: "job-name"}
_NON_NEGATIVE = (
    "parallelism",
    "completions",
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)
_UNSUPPORTED = (
    "podFailurePolicy",
    "successPolicy",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "managedBy",
    "scheduling",
)


def defaults(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    template = spec.setdefault("template", {})
    if "spec" in template:
        pod.spec_defaults(template["spec"])
    if not spec.get("manualSelector"):
        _select_own_pods(obj, spec, template)


def _select_own_pods(obj: Object, spec: Object, template: Object) -> None:
    meta = obj["metadata"]
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    for label, value in ((UID_LABEL, meta["uid"]), (NAME_LABEL, meta.get("name", ""))):
        labels.setdefault(label, value)
        labels.setdefault(_OLD_LABELS[label], value)
    spec.setdefault("selector", {"matchLabels": {UID_LABEL: meta["uid"]}})


def check(obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec")
    if spec is None:
        yield status_errors.required("spec")
        return
    for name in _NON_NEGATIVE:
        if spec.get(name, 0) < 0:
            yield status_errors.invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    yield from _unsupported_fields(spec)
    if old is None and not spec.get("manualSelector"):
        yield from _own_selector(obj, spec)
    yield from pod.template_check(obj, "spec.template", ("OnFailure", "Never"))
    if old is None:
        return
    for name in ("completions", "selector", "template", "completionMode"):
        if old["spec"].get(name) != spec.get(name):
            yield status_errors.invalid(f"spec.{name}", spec.get(name), "field is immutable")


def _unsupported_fields(spec: Object) -> Iterator[Cause]:
    if spec["completionMode"] != "NonIndexed":
        yield status_errors.unsupported("spec.completionMode", spec["completionMode"], ("NonIndexed",))
    for name in _UNSUPPORTED:
        if name in spec:
            yield status_errors.invalid(f"spec.{name}", spec[name], "not supported on one machine")
    if spec["podReplacementPolicy"] != "TerminatingOrFailed":
        yield status_errors.unsupported(
            "spec.podReplacementPolicy", spec["podReplacementPolicy"], ("TerminatingOrFailed",)
        )
    if spec.get("manualSelector"):
        rule = "on one machine a Job selects its own Pods"
        yield status_errors.invalid("spec.manualSelector", spec["manualSelector"], rule)


def _own_selector(obj: Object, spec: Object) -> Iterator[Cause]:
    expected = {"matchLabels": {UID_LABEL: obj["metadata"]["uid"]}}
    if spec["selector"] != expected:
        yield status_errors.invalid("spec.selector", spec["selector"], "`selector` not auto-generated")
    labels = spec["template"]["metadata"]["labels"]
    for label, value in ((UID_LABEL, obj["metadata"]["uid"]), (NAME_LABEL, obj["metadata"].get("name", ""))):
        if labels[label] != value:
            yield status_errors.invalid(
                f"spec.template.metadata.labels[{label}]", labels[label], f"must be '{value}'"
            )
