"""The notes of a trial with a share of a GPU: how the share was granted, and whether it was kept. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from serving.resources import names
from serving.resources.trial import Window

_SLACK = 1.02
"""A CUDA context's own memory is rounded."""
_MIB = 1024**2
UNKNOWN = (
    "GpuUsageUnknown: the node says nothing of the GPU: on one machine it takes nvidia-ml-py (slipway[gpu]), and a"
    " cluster's kubelet has no such figures"
)


def before(template: Mapping[str, Any]) -> list[str]:
    """Return the notes that hold before any measurement; none without a GPU."""
    share = _share(template)
    notes = []
    if share.get("snapped"):
        notes.append(f"GpuShareSnapped: {share['snapped']}")
    if share.get("enforcedIf"):
        notes.append(
            f"GpuShareAssumed: {share['mechanism']} keeps to it only if {'; and if '.join(share['enforcedIf'])}"
        )
    return notes


def after(template: Mapping[str, Any], windows: Sequence[Window]) -> list[str]:
    """Return whether the use of the GPU kept to the share."""
    share = _share(template)
    if not share or not windows:
        return []
    used = max(window.usage.gpu_memory_bytes for window in windows)
    if not used:
        return [UNKNOWN]
    granted = share["granted"].get("memoryMiB")
    if granted is not None and used > granted * _MIB * _SLACK:
        return [f"LimitNotEnforced: it used {used} bytes of GPU memory of {granted * _MIB:.0f}"]
    return []


def _share(template: Mapping[str, Any]) -> Mapping[str, Any]:
    text = ((template.get("metadata") or {}).get("annotations") or {}).get(names.GPU_ANNOTATION)
    share: Mapping[str, Any] = json.loads(text) if text else {}
    return share
