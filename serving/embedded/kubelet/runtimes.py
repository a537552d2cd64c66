"""The table of local runtimes: what an image name means where there is no container registry.

A runtime's module is known by its name alone: the node agent starts runtimes and never imports one.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from serving.resources.names import RUNTIME_IMAGE_PREFIX


@dataclass(frozen=True)
class Runtime:
    """What an image is on this machine: this interpreter and its environment, and what of it is run."""

    command: tuple[str, ...]
    """What `args` are appended to."""
    module: str | None = None
    """Has `PRELOAD` (names of the modules that it needs) and `main() -> int`; None where a zygote is of no use."""


def _served_by(module: str) -> Runtime:
    return Runtime((sys.executable, "-m", module), module)


RUNTIMES: Mapping[str, Runtime] = {
    RUNTIME_IMAGE_PREFIX + "sklearn": _served_by("serving.runtimes.sklearn.server"),
    RUNTIME_IMAGE_PREFIX + "pytorch": _served_by("serving.runtimes.torch.server"),
    RUNTIME_IMAGE_PREFIX + "python": Runtime((sys.executable,)),
}
"""By image."""
