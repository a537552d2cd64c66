"""One share of a GPU, for each mechanism that shares GPUs: what a Pod has to say for it. Pure."""

import json

from serving.objects import Object
from serving.planning.gpu import ack, dra, hami, mig, mps
from serving.planning.gpu.share import MIB, Rendered, Share, snapped
from serving.resources import names, quantity
from serving.resources.inference import Gpu

__all__ = ["Rendered", "Share", "asked", "name_claim", "put", "render"]

CLAIM = "gpu"
"""The Pod's own name for its claim."""


def asked(gpu: Gpu) -> Share:
    """Return the share that a predictor asks for."""
    memory = None if gpu.memory is None else -int(-quantity.parse(gpu.memory) // 1)
    return Share(memory, gpu.cores)


def render(gpu: Gpu) -> Rendered:
    """Return what a predictor's GPU becomes by its mechanism.

    Raises:
        errors.Permanent: `GpuShareInvalid`, with the field; the mechanism has no such share.
    """
    share = asked(gpu)
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


def put(template: Object, container: Object, gpu: Gpu) -> Rendered:
    """Put what the share needs into a Pod template and into that container of it; both are changed.

    Returns:
        What was put in. Where it has a claim, the Pod names no ResourceClaimTemplate yet: see `name_claim`.

    Raises:
        errors.Permanent: `GpuShareInvalid`.
    """
    found = render(gpu)
    resources = container.setdefault("resources", {})
    if found.limits:
        resources["requests"] = {**resources.get("requests", {}), **found.limits}
        resources["limits"] = {**resources.get("limits", {}), **found.limits}
    env = {names.DEVICE_ENV: "cuda", **found.env}
    container.setdefault("env", []).extend({"name": name, "value": value} for name, value in env.items())
    if found.node_selector:
        template["spec"]["nodeSelector"] = dict(found.node_selector)
    if found.claim is not None:
        resources["claims"] = [{"name": CLAIM}]
    template["metadata"]["annotations"][names.GPU_ANNOTATION] = _told(gpu, found)
    return found


def name_claim(template: Object, name: str) -> None:
    """Let the Pods of a template have claims made of the ResourceClaimTemplate of this name."""
    template["spec"]["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": name}]


def _told(gpu: Gpu, found: Rendered) -> str:
    wanted = asked(gpu)
    told = {
        "mechanism": gpu.mechanism,
        "asked": _numbers(wanted),
        "granted": _numbers(found.granted),
        "snapped": snapped(wanted, found.granted),
        "enforcedIf": list(found.enforced_if),
    }
    return json.dumps(told, separators=(",", ":"))


def _numbers(share: Share) -> Object:
    memory = None if share.memory is None else share.memory / MIB
    numbers = {"memoryMiB": memory, "coresPercent": share.cores}
    return {name: number for name, number in numbers.items() if number is not None}
