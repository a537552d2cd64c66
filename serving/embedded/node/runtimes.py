"""The table of local runtimes: what an image name means where there is no container registry."""

import sys
from collections.abc import Mapping, Sequence

from serving.resources.names import RUNTIME_IMAGE_PREFIX

RUNTIMES: Mapping[str, Sequence[str]] = {
    RUNTIME_IMAGE_PREFIX + "sklearn": (sys.executable, "-m", "serving.runtimes.sklearn_server"),
    RUNTIME_IMAGE_PREFIX + "python": (sys.executable,),
}
"""Image to the command that `args` are appended to; this interpreter and its environment are the image."""
