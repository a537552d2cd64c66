"""Multi-Instance GPU: the smallest profile of the GPU's ladder that has the share, by the device plugin's strategy `mixed`.

https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html. A profile's name says its slices of the
processors, and its memory in gigabytes as they are sold: less can be used. What can be, `nvidia-smi mig -lgip` says; the
fraction that is counted here is the least of what it says of a type's profiles.
"""

from dataclasses import dataclass

from serving import errors
from serving.planning.gpu.share import GIB, MIB, Rendered, Share


@dataclass(frozen=True)
class Ladder:
    """The profiles of one type, each with at least as much of both as the one before."""

    profiles: tuple[tuple[int, int], ...]
    """(slices, gigabytes by name)."""
    usable: float
    """GiB that a process can use, for each of these gigabytes."""

    @property
    def slices(self) -> int:
        """Of the whole GPU."""
        return self.profiles[-1][0]


_AMPERE = 0.95
"""9.50 GiB of `1g.10gb` on an A100, 4.75 of `1g.5gb`; a H100 has a little more."""
LADDERS = {
    "A30": Ladder(((1, 6), (2, 12), (4, 24)), _AMPERE),
    "A100-40GB": Ladder(((1, 5), (1, 10), (2, 10), (3, 20), (4, 20), (7, 40)), _AMPERE),
    "A100-80GB": Ladder(((1, 10), (1, 20), (2, 20), (3, 40), (4, 40), (7, 80)), _AMPERE),
    "H100-80GB": Ladder(((1, 10), (1, 20), (2, 20), (3, 40), (4, 40), (7, 80)), _AMPERE),
    "H200": Ladder(((1, 18), (1, 35), (2, 35), (3, 71), (4, 71), (7, 141)), 0.88),  # 16.00 GiB of 1g.18gb
    # No listing of a B200 was seen: an eighth of what is sold, less the share that a H200 loses.
    "B200": Ladder(((1, 23), (1, 45), (2, 45), (3, 90), (4, 90), (7, 180)), 0.85),
}


def render(asked: Share, gpu: str) -> Rendered:
    """Return the share as a MIG device of this type of GPU.

    Raises:
        errors.Permanent: `GpuShareInvalid`, the type is none of `LADDERS`, or its whole GPU is not enough.
    """
    ladder = LADDERS.get(gpu)
    if ladder is None:
        raise errors.Permanent(
            "GpuShareInvalid", f"resources.gpu.type: {gpu!r} has no MIG profiles; {', '.join(LADDERS)} have"
        )
    for slices, gigabytes in ladder.profiles:
        memory = int(gigabytes * ladder.usable * GIB) // MIB * MIB
        enough = (asked.cores or 0) * ladder.slices <= 100 * slices and (asked.memory or 0) <= memory
        if enough:
            return Rendered(
                Share(memory, 100 * slices // ladder.slices),
                {f"nvidia.com/mig-{slices}g.{gigabytes}gb": "1"},
                enforced_if=("the node's GPU is in MIG mode with this profile, and its strategy is mixed",),
            )
    largest = ladder.profiles[-1]
    raise errors.Permanent(
        "GpuShareInvalid",
        f"resources.gpu.memory: {(asked.memory or 0) / GIB:g}Gi; of a whole {gpu} ({largest[0]}g.{largest[1]}gb)"
        f" {largest[1] * ladder.usable:g}Gi can be counted on",
    )
