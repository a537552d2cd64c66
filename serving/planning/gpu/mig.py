"""Multi-Instance GPU: the smallest profile that has the share, with the device plugin's strategy `mixed`.

https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html. The name of a profile has
its number of compute slices and its nominal memory in gigabytes, of which less is usable. `nvidia-smi mig
-lgip` prints the usable memory; the fraction here is the smallest among a GPU type's profiles.
"""

from dataclasses import dataclass

from serving import errors
from serving.planning.gpu.share import GIB, MIB, GpuShare, RenderedShare


@dataclass(frozen=True)
class Ladder:
    """The profiles of one GPU type, in ascending order of both slices and memory."""

    profiles: tuple[tuple[int, int], ...]
    """(slices, nominal gigabytes)."""
    usable: float
    """GiB that a process can use per nominal gigabyte."""

    @property
    def slices(self) -> int:
        """Slices of the whole GPU."""
        return self.profiles[-1][0]


_AMPERE = 0.95
"""9.50 GiB of `1g.10gb` on an A100, 4.75 of `1g.5gb`; an H100 has a little more."""
LADDERS = {
    "A30": Ladder(((1, 6), (2, 12), (4, 24)), _AMPERE),
    "A100-40GB": Ladder(((1, 5), (1, 10), (2, 10), (3, 20), (4, 20), (7, 40)), _AMPERE),
    "A100-80GB": Ladder(((1, 10), (1, 20), (2, 20), (3, 40), (4, 40), (7, 80)), _AMPERE),
    "H100-80GB": Ladder(((1, 10), (1, 20), (2, 20), (3, 40), (4, 40), (7, 80)), _AMPERE),
    "H200": Ladder(((1, 18), (1, 35), (2, 35), (3, 71), (4, 71), (7, 141)), 0.88),  # 16.00 GiB of 1g.18gb
    # Not measured: an eighth of the nominal memory, reduced as on an H200.
    "B200": Ladder(((1, 23), (1, 45), (2, 45), (3, 90), (4, 90), (7, 180)), 0.85),
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
    for slices, gigabytes in ladder.profiles:
        memory = int(gigabytes * ladder.usable * GIB) // MIB * MIB
        enough = (requested.cores or 0) * ladder.slices <= 100 * slices and (requested.memory or 0) <= memory
        if enough:
            return RenderedShare(
                GpuShare(memory, 100 * slices // ladder.slices),
                {f"nvidia.com/mig-{slices}g.{gigabytes}gb": "1"},
                enforced_if=("the node's GPU is in MIG mode with this profile, and its strategy is mixed",),
            )
    largest = ladder.profiles[-1]
    raise errors.Permanent(
        "GpuShareInvalid",
        f"resources.gpu.memory: {(requested.memory or 0) / GIB:g}Gi; of a whole {gpu}"
        f" ({largest[0]}g.{largest[1]}gb) {largest[1] * ladder.usable:g}Gi are usable",
    )
