"""The table of local runtimes: the meaning of an image name on a machine without container images.

The agent starts a runtime's module by its name, and never imports one.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from serving.resources.names import RUNTIME_IMAGE_PREFIX


@dataclass(frozen=True)
class Runtime:
    """The meaning of an image: a command of this interpreter and its environment."""

    command: tuple[str, ...]
    """The container's `args` are appended."""
    module: str | None = None
    """Has `PRELOAD` (names of the modules that it needs) and `main() -> int`; None where a zygote is of no
    use."""


def _module(name: str) -> Runtime:
    return Runtime((sys.executable, "-m", name), name)


RUNTIMES: Mapping[str, Runtime] = {
    RUNTIME_IMAGE_PREFIX + "sklearn": _module("serving.runtimes.sklearn.server"),
    RUNTIME_IMAGE_PREFIX + "pytorch": _module("serving.runtimes.torch.server"),
    RUNTIME_IMAGE_PREFIX + "python": Runtime((sys.executable,)),
}
"""By image."""
