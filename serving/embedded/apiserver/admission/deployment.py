"""Defaults and rules of Deployments, as in k8s.io/kubernetes/pkg/apis/apps/{v1,validation}."""

from collections.abc import Iterator

from serving.embedded.apiserver import selectors, status_errors
from serving.embedded.apiserver.admission import pod
from serving.errors import Cause
from serving.objects import Object

_STRATEGIES = ("Recreate", "RollingUpdate")


def defaults(obj: Object) -> None:
    spec = obj.get("spec")
    if spec is None:
        return
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    template = spec.get("template")
    if template and "spec" in template:
        pod.spec_defaults(template["spec"])


def check(obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec")
    if spec is None:
        yield status_errors.required("spec")
        return
    for name in ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        if spec.get(name, 0) < 0:
            yield status_errors.invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    if spec["progressDeadlineSeconds"] <= spec.get("minReadySeconds", 0):
        rule = "must be greater than minReadySeconds"
        yield status_errors.invalid("spec.progressDeadlineSeconds", spec["progressDeadlineSeconds"], rule)
    yield from _selector(spec)
    if old is not None and old["spec"]["selector"] != spec["selector"]:
        yield status_errors.invalid("spec.selector", spec["selector"], "field is immutable")
    yield from _strategy(spec["strategy"])
    yield from pod.template_check(obj, "spec.template", ("Always",))


def _selector(spec: Object) -> Iterator[Cause]:
    selector = spec["selector"]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield status_errors.invalid("spec.selector", selector, "empty selector is invalid for deployment")
        return
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not selectors.matches(selector, labels):
        yield status_errors.invalid(
            "spec.template.metadata.labels", labels, "`selector` does not match template `labels`"
        )


def _strategy(strategy: Object) -> Iterator[Cause]:
    path = "spec.strategy"
    if strategy["type"] not in _STRATEGIES:
        yield status_errors.unsupported(f"{path}.type", strategy["type"], _STRATEGIES)
    if strategy["type"] == "Recreate" and "rollingUpdate" in strategy:
        rule = "may not be specified when strategy `type` is 'Recreate'"
        yield status_errors.forbidden(f"{path}.rollingUpdate", rule)
    rolling = strategy.get("rollingUpdate")
    if rolling is None:
        return
    for name in ("maxUnavailable", "maxSurge"):
        value = rolling.get(name, 0)
        number = value.removesuffix("%") if isinstance(value, str) else value
        if isinstance(value, str) and not (value.endswith("%") and number.isdecimal()):
            rule = "a valid percent string must be a numeric string followed by an ending '%'"
            yield status_errors.invalid(f"{path}.rollingUpdate.{name}", value, rule)
        elif int(number) < 0:
            yield status_errors.invalid(
                f"{path}.rollingUpdate.{name}", value, "must be greater than or equal to 0"
            )
    if rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
        rule = "may not be 0 when `maxSurge` is 0"
        yield status_errors.invalid(f"{path}.rollingUpdate.maxUnavailable", rolling["maxUnavailable"], rule)
