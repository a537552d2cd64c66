"""Adds a predictor's share of a GPU to its Pod template, for the mechanism that the predictor names."""

import json

from serving.objects import Object
from serving.planning.gpu import ack, dra, hami, mig, mps
from serving.planning.gpu.share import MIB, GpuShare, RenderedShare, describe_rounding
from serving.resources import names
from serving.resources.formats import quantity
from serving.resources.inference import Gpu

CLAIM = "gpu"
"""Name of the claim within the Pod."""


def render(gpu: Gpu) -> RenderedShare:
    """Return the share as the predictor's mechanism renders and grants it.

    Raises:
        errors.Permanent: `GpuShareInvalid`, with the field: the mechanism has no such share.
    """
    share = _requested(gpu)
    match gpu.mechanism:
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


def add_share(template: Object, container: Object, gpu: Gpu) -> RenderedShare:
    """Add the share to a Pod template and to one of its containers, in place.

    Returns:
        The share. If it has a claim, the template still lacks its ResourceClaimTemplate: see `name_claim`.

    Raises:
        errors.Permanent: `GpuShareInvalid`.
    """
    rendered = render(gpu)
    resources = container.setdefault("resources", {})
    if rendered.limits:
        resources["requests"] = {**resources.get("requests", {}), **rendered.limits}
        resources["limits"] = {**resources.get("limits", {}), **rendered.limits}
    env = {names.DEVICE_ENV: "cuda", **rendered.env}
    container.setdefault("env", []).extend({"name": name, "value": value} for name, value in env.items())
    if rendered.node_selector:
        template["spec"]["nodeSelector"] = dict(rendered.node_selector)
    if rendered.claim is not None:
        resources["claims"] = [{"name": CLAIM}]
    template["metadata"]["annotations"][names.GPU_ANNOTATION] = _annotation(gpu, rendered)
    return rendered


def name_claim(template: Object, name: str) -> None:
    """Let the template's Pods have claims made from the ResourceClaimTemplate of this name."""
    template["spec"]["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": name}]


def _requested(gpu: Gpu) -> GpuShare:
    memory = None if gpu.memory is None else -int(-quantity.parse(gpu.memory) // 1)
    return GpuShare(memory, gpu.cores)


def _annotation(gpu: Gpu, rendered: RenderedShare) -> str:
    requested = _requested(gpu)
    body = {
        "mechanism": gpu.mechanism,
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
