"""Builds Slipway with setuptools, and with a C compiler from the package index where the machine has none.

PEP 517 lets a build ask for packages that only it needs; docs/dependencies.md says why it is Zig.
"""

import os
import shlex
import subprocess
import sys
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 the hooks that stay as they are

COMPILER = "ziglang>=0.14,<0.18"

Settings = dict[str, Any] | None


def compiles(command: str) -> bool:
    """Return whether a C compiler works, with the headers of the C library."""
    try:
        done = subprocess.run(
            [*shlex.split(command), "-E", "-x", "c", "-"],
            input=b"#include <stdlib.h>\n",
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def _machine_compiles() -> bool:
    return compiles(os.environ.get("CC", "cc"))


def _choose_compiler() -> None:
    if not _machine_compiles():
        os.environ["CC"] = shlex.join([sys.executable, "-m", "ziglang", "cc"])


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    required = build_meta.get_requires_for_build_wheel(config_settings)
    return required if _machine_compiles() else [*required, COMPILER]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    required = build_meta.get_requires_for_build_editable(config_settings)
    return required if _machine_compiles() else [*required, COMPILER]


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    _choose_compiler()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    _choose_compiler()
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
