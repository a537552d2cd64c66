"""The table of local runtimes: the commands of image names on a machine without container images.

The agent starts a runtime's module by its name, and never imports it.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from serving.resources.names import RUNTIME_IMAGE_PREFIX


@dataclass(frozen=True)
class LocalRuntime:
    """A command of this interpreter and its environment, in place of an image."""

    command: tuple[str, ...]
    """The container's `args` are appended."""
    module: str | None = None
    """A module with `PRELOAD` (names of modules) and `main() -> int`; None for a runtime without a zygote."""


def _module(name: str) -> LocalRuntime:
    return LocalRuntime((sys.executable, "-m", name), name)


RUNTIMES: Mapping[str, LocalRuntime] = {
    RUNTIME_IMAGE_PREFIX + "sklearn": _module("serving.runtimes.sklearn.server"),
    RUNTIME_IMAGE_PREFIX + "pytorch": _module("serving.runtimes.torch.server"),
    RUNTIME_IMAGE_PREFIX + "transformers": _module("serving.runtimes.transformers.server"),
    RUNTIME_IMAGE_PREFIX + "python": LocalRuntime((sys.executable,)),
}
"""By image."""
