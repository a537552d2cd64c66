"""The PyTorch runtime: `python -m serving.runtimes.torch.server`, one model, one process.

`serving.runtimes.process` documents its environment and life, `serving.runtimes.torch.files` a model's files.
"""

import functools
import importlib
import importlib.util
import sys
from typing import Any

from serving import errors
from serving.runtimes import process
from serving.runtimes.loading import ModelFiles

_READER = "torch.export.pt2_archive._package"
"""Imported by the first `torch.export.load`: two seconds, as much as `torch` itself."""
PRELOAD = (
    *process.PRELOAD,
    "torch",
    _READER,
    "serving.runtimes.torch.device",
    "serving.runtimes.torch.files",
    "serving.runtimes.torch.model",
    "serving.runtimes.torch.warm_up",
)
"""Modules that are imported before forks, so that forks import none."""


def main() -> int:
    """Serve until SIGTERM; return the exit status."""
    files = ModelFiles(programs=("model.pt2",), model_weights=("weights.pt",))
    return process.main(process.Runtime("pytorch", files, _framework, process.tensor_application))


def _framework() -> process.Framework[Any]:
    if importlib.util.find_spec("torch") is None:
        raise errors.Permanent("RuntimeMissing", "PyTorch is not installed (pip install 'slipway[torch]')")
    # These modules import PyTorch. The reader is imported here, so that its time counts as `import`, not as
    # `load`.
    importlib.import_module(_READER)
    from serving.runtimes.torch import device, files, model  # noqa: PLC0415

    load = functools.partial(files.load, device=device.usable())
    # The constructor runs the program for the first time; the instance is served.
    return process.Framework(load=load, warm=model.TorchModel)


if __name__ == "__main__":
    sys.exit(main())
