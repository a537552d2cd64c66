"""The notes on a trial's share of a GPU: how it was granted, and whether it was enforced. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from serving.planning.gpu.pod import annotated
from serving.resources.tuning.trial import Window

_SLACK = 1.02
"""Factor on the granted memory before a note: a CUDA context's own memory is rounded."""
_MIB = 1024**2
_UNKNOWN = (
    "GpuUsageUnknown: the node reports no usage of the GPU: one machine needs nvidia-ml-py (slipway[gpu]),"
    " and a cluster's kubelet has no such figures"
)


def before(template: Mapping[str, Any]) -> list[str]:
    """Return the notes before the measurement of a Pod with this template; none without a GPU."""
    share = annotated(template)
    notes = []
    if share.get("snapped"):
        notes.append(f"GpuShareSnapped: {share['snapped']}")
    if share.get("enforcedIf"):
        rules = "; and if ".join(share["enforcedIf"])
        notes.append(f"GpuShareAssumed: {share['mechanism']} keeps to it only if {rules}")
    return notes


def after(template: Mapping[str, Any], windows: Sequence[Window]) -> list[str]:
    """Return the notes after the measurement: usage that is unknown, or exceeds the share."""
    share = annotated(template)
    if not share or not windows:
        return []
    used = max(window.usage.gpu_memory_bytes for window in windows)
    if not used:
        return [_UNKNOWN]
    granted = share["granted"].get("memoryMiB")
    if granted is not None and used > granted * _MIB * _SLACK:
        return [f"LimitNotEnforced: it used {used} bytes of GPU memory of {granted * _MIB:.0f}"]
    return []
