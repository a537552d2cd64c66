"""Adds a predictor's share of a GPU to its Pod template, for the mechanism that the predictor names. Pure."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serving import errors
from serving.objects import Object
from serving.planning.gpu import ack, dra, hami, mig, mps
from serving.planning.gpu.share import GIB, MIB, GpuShare, Mechanism, RenderedShare, describe_rounding
from serving.resources import names
from serving.resources.formats import quantity
from serving.resources.inference import Gpu

CLAIM = "gpu"
"""Name of the claim within the Pod."""
MOST_MEMORY = 1024 * GIB
"""More than any GPU has; a larger number is a mistake in the unit."""


def render(gpu: Gpu) -> RenderedShare:
    """Return the share as the predictor's mechanism renders and grants it.

    Raises:
        errors.Permanent: `GpuShareInvalid`, with the field: the mechanism has no such share.
    """
    share = _requested(gpu)
    match mechanism_of(gpu):
        case "mps":
            return mps.render(share)
        case "mig":
            return mig.render(share, gpu.type or "")
        case "hami":
            return hami.render(share)
        case "ack":
            return ack.render(share)
        case "dra":
            return dra.render(share)


def mechanism_of(gpu: Gpu) -> Mechanism:
    """Return the mechanism of a share; `auto` without a choice by the nodes is that of one machine."""
    return "mps" if gpu.mechanism == "auto" else gpu.mechanism


def annotated(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON of `names.GPU_ANNOTATION` in a Pod template; empty without a share of a GPU.

    Keys: `mechanism`, `asked` and `granted` (each with `memoryMiB` and `coresPercent`, or one of them),
    `snapped` (the rounding as text; may be empty), `enforcedIf` (conditions on the node, a list of texts).
    """
    text = ((template.get("metadata") or {}).get("annotations") or {}).get(names.GPU_ANNOTATION)
    share: Mapping[str, Any] = json.loads(text) if text else {}
    return share


@dataclass(frozen=True)
class SharedPod:
    """A Pod template and one of its containers, with a share of a GPU.

    A claim is not in the template yet. The caller adds it later (`with_claim`), as the ResourceClaimTemplate
    has the name of the revision, which has the hash of the template.
    """

    template: Object
    container: Object
    """The container with the share, which the caller adds to the template."""
    share: RenderedShare


def with_share(template: Object, container: Object, gpu: Gpu) -> SharedPod:
    """Return a Pod template and one of its containers with the share.

    Args:
        template: with annotations, and without the container.
        container: that the caller adds to the template afterwards.
        gpu: the requested share.

    Raises:
        errors.Permanent: `GpuShareInvalid`.
    """
    rendered = render(gpu)
    resources = dict(container.get("resources", {}))
    if rendered.limits:
        resources["requests"] = {**resources.get("requests", {}), **rendered.limits}
        resources["limits"] = {**resources.get("limits", {}), **rendered.limits}
    if rendered.claim is not None:
        resources["claims"] = [{"name": CLAIM}]
    env = {names.DEVICE_ENV: "cuda", **rendered.env}
    added = [{"name": name, "value": value} for name, value in env.items()]
    meta, spec = template["metadata"], template["spec"]
    if rendered.node_selector:
        spec = {**spec, "nodeSelector": {**spec.get("nodeSelector", {}), **rendered.node_selector}}
    annotations = {**meta["annotations"], names.GPU_ANNOTATION: _annotation(gpu, rendered)}
    return SharedPod(
        {**template, "metadata": {**meta, "annotations": annotations}, "spec": spec},
        {**container, "resources": resources, "env": [*container.get("env", []), *added]},
        rendered,
    )


def refuse_override(share: RenderedShare, container: Object, path: str) -> None:
    """Refuse a container of a predictor's template that would override a value of the share.

    The Pod's annotation would report a share that nothing enforces.

    Args:
        share: the rendered share.
        container: the container of the user's template, which is merged over the one with the share.
        path: of the container in the Inference, for the message.

    Raises:
        errors.Permanent: `TemplateInvalid`, with the field below `path`.
    """
    for entry in container.get("env") or []:
        name = entry.get("name")
        if name in share.env and entry != {"name": name, "value": share.env[name]}:
            value = entry.get("value", "a reference")
            raise _override_error(f"{path}.env[name={name!r}]", share.env[name], value)
    resources = container.get("resources") or {}
    claims = [{"name": CLAIM}]
    if share.claim is not None and resources.get("claims", claims) != claims:
        raise _override_error(f"{path}.resources.claims", claims, resources["claims"])
    for field in ("requests", "limits"):
        if share.limits and field in resources and resources[field] is None:
            raise _override_error(f"{path}.resources.{field}", dict(share.limits), None)
        for name, amount in (resources.get(field) or {}).items():
            if name in share.limits and str(amount) != share.limits[name]:
                raise _override_error(f"{path}.resources.{field}[{name!r}]", share.limits[name], amount)


def _override_error(field: str, granted: object, value: object) -> errors.Permanent:
    return errors.Permanent(
        "TemplateInvalid", f"{field}: must be {granted!r}, as resources.gpu sets it, got {value!r}"
    )


def with_claim(template: Object, name: str) -> Object:
    """Return the template whose Pods have claims made from the ResourceClaimTemplate of this name."""
    claims = [{"name": CLAIM, "resourceClaimTemplateName": name}]
    return {**template, "spec": {**template["spec"], "resourceClaims": claims}}


def has_claim(template: Object, name: str) -> bool:
    """Whether the template's Pods have claims made from the ResourceClaimTemplate of this name."""
    claims = template["spec"].get("resourceClaims") or []
    return any(claim.get("resourceClaimTemplateName") == name for claim in claims)


def _requested(gpu: Gpu) -> GpuShare:
    return GpuShare(None if gpu.memory is None else _bytes(gpu.memory), gpu.cores)


def _bytes(memory: str) -> int:
    try:
        amount = quantity.parse(memory)
    except ValueError as error:
        raise errors.Permanent("GpuShareInvalid", f"resources.gpu.memory: {error}") from error
    if not MIB <= amount <= MOST_MEMORY:
        message = f"resources.gpu.memory: must be at least 1Mi and at most 1Ti, got {memory}"
        raise errors.Permanent("GpuShareInvalid", message)
    return math.ceil(amount)


def _annotation(gpu: Gpu, rendered: RenderedShare) -> str:
    """Return the value of `names.GPU_ANNOTATION`, as JSON."""
    requested = _requested(gpu)
    body = {
        "mechanism": mechanism_of(gpu),
        "asked": _amounts(requested),
        "granted": _amounts(rendered.granted),
        "snapped": describe_rounding(requested, rendered.granted),
        "enforcedIf": list(rendered.enforced_if),
    }
    return json.dumps(body, separators=(",", ":"))


def _amounts(share: GpuShare) -> Object:
    memory = None if share.memory is None else share.memory / MIB
    amounts = {"memoryMiB": memory, "coresPercent": share.cores}
    return {name: amount for name, amount in amounts.items() if amount is not None}
