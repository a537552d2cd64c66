"""The PyTorch runtime: `python -m serving.runtimes.torch_server`, one model, one process.

`serving.runtimes.process` says what it reads and when it listens, `serving.runtimes.torch_files` what a model is.
"""

import importlib.util
import sys
from typing import Any

from serving import errors
from serving.runtimes import process
from serving.runtimes.loading import Wanted

PRELOAD = (
    *process.PRELOAD,
    "torch",
    # Imported by the first `torch.export.load`: two seconds, as much as `torch` itself.
    "torch.export.pt2_archive._package",
    "serving.runtimes.torch_files",
    "serving.runtimes.torch_model",
    "serving.runtimes.torch_rehearsal",
)
"""What is imported before a fork, so that nothing is after it."""


def main() -> int:
    """Serve until told to stop; return the exit status."""
    return process.main(process.Runtime("pytorch", Wanted(("model.pt2",), ("weights.pt",)), _framework))


def _framework() -> process.Framework[Any]:
    if importlib.util.find_spec("torch") is None:
        raise errors.Permanent("RuntimeMissing", "PyTorch is not installed (pip install 'slipway[torch]')")
    # They import PyTorch.
    from serving.runtimes import torch_files, torch_model  # noqa: PLC0415

    return process.Framework(load=torch_files.load, warm=torch_model.TorchModel)


if __name__ == "__main__":
    sys.exit(main())
