"""Multi-Instance GPU: the smallest profile that has the share, with the device plugin's strategy `mixed`.

https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html. The name of a profile has
its number of compute slices and its nominal memory in gigabytes, of which less is usable. `nvidia-smi mig
-lgip` prints the usable memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

from serving import errors
from serving.planning.gpu.share import GIB, MIB, GpuShare, RenderedShare


class MigProfile(NamedTuple):
    """One size of a MIG device."""

    slices: int
    """Compute slices."""
    gigabytes: int
    """Nominal memory."""

    @property
    def name(self) -> str:
        return f"{self.slices}g.{self.gigabytes}gb"


@dataclass(frozen=True)
class Ladder:
    """The profiles of one GPU type, in ascending order of both slices and memory."""

    profiles: tuple[MigProfile, ...]
    usable: float
    """GiB that a process can use per nominal gigabyte: the smallest ratio among the profiles."""

    @property
    def whole(self) -> MigProfile:
        """The profile of the whole GPU."""
        return self.profiles[-1]


def _ladder(*profiles: tuple[int, int], usable: float) -> Ladder:
    """Return the ladder of these profiles: (slices, nominal gigabytes)."""
    return Ladder(tuple(MigProfile(*profile) for profile in profiles), usable)


_A100_USABLE = 0.95
"""9.50 GiB of `1g.10gb` on an A100, 4.75 of `1g.5gb`; an H100 has a little more."""
LADDERS = {
    "A30": _ladder((1, 6), (2, 12), (4, 24), usable=_A100_USABLE),
    "A100-40GB": _ladder((1, 5), (1, 10), (2, 10), (3, 20), (4, 20), (7, 40), usable=_A100_USABLE),
    "A100-80GB": _ladder((1, 10), (1, 20), (2, 20), (3, 40), (4, 40), (7, 80), usable=_A100_USABLE),
    "H100-80GB": _ladder((1, 10), (1, 20), (2, 20), (3, 40), (4, 40), (7, 80), usable=_A100_USABLE),
    # 16.00 GiB of `1g.18gb`.
    "H200": _ladder((1, 18), (1, 35), (2, 35), (3, 71), (4, 71), (7, 141), usable=0.88),
    # An assumption: the GPU was not measured.
    "B200": _ladder((1, 23), (1, 45), (2, 45), (3, 90), (4, 90), (7, 180), usable=0.85),
}


def render(requested: GpuShare, gpu: str) -> RenderedShare:
    """Return the share as a MIG device of this type of GPU.

    Raises:
        errors.Permanent: `GpuShareInvalid`, `LADDERS` lacks the type, or its whole GPU is too small.
    """
    ladder = LADDERS.get(gpu)
    if ladder is None:
        raise errors.Permanent(
            "GpuShareInvalid", f"resources.gpu.type: {gpu!r} has no MIG profiles; {', '.join(LADDERS)} have"
        )
    whole = ladder.whole
    for profile in ladder.profiles:
        memory = int(profile.gigabytes * ladder.usable * GIB) // MIB * MIB
        # Multiplied, so that no fraction of a slice is rounded.
        has_cores = 100 * profile.slices >= (requested.cores or 0) * whole.slices
        has_memory = memory >= (requested.memory or 0)
        if has_cores and has_memory:
            return RenderedShare(
                GpuShare(memory, 100 * profile.slices // whole.slices),
                {f"nvidia.com/mig-{profile.name}": "1"},
                enforced_if=("the node's GPU is in MIG mode with this profile, and its strategy is mixed",),
            )
    # Only memory can be too large, as at most 100 percent of the cores are requested.
    raise errors.Permanent(
        "GpuShareInvalid",
        f"resources.gpu.memory: {(requested.memory or 0) / GIB:g}Gi; of a whole {gpu}"
        f" ({whole.name}) {whole.gigabytes * ladder.usable:g}Gi are usable",
    )
