"""The life of a runtime's process: environment, verified files, a model, and serving it until told to stop.

Works alike in a new process and in one that was forked with everything imported: importing this, or a runtime's
module, reads no environment, starts no thread and opens nothing. Knows no framework.

Environment: SLIPWAY_MODEL_NAME, SLIPWAY_MODEL_VERSION, SLIPWAY_MODEL_DIR, SLIPWAY_MODEL_DIGEST (all required),
SLIPWAY_SPAWNED (unix seconds), HOST (127.0.0.1), PORT (8080).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from serving import errors
from serving.resources import names
from serving.runtimes import threads
from serving.runtimes.phases import Stopwatch
from serving.settings import RuntimeSettings

if TYPE_CHECKING:
    from serving.images.manifest import OutputManifest
    from serving.runtimes.loading import Verified
    from serving.runtimes.model import Model

PRELOAD = (
    "concurrent.futures.thread",
    "encodings.idna",
    "threadpoolctl",
    "uvloop",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "serving.runtimes.app",
    "serving.runtimes.loading",
    "serving.runtimes.serve",
)
"""What every runtime has imported when it has answered its first request, beside its framework."""

Loaded = TypeVar("Loaded")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The environment, checked."""

    name: str
    version: str
    directory: Path
    digest: str
    host: str
    port: int


@dataclass(frozen=True)
class Framework(Generic[Loaded]):
    """How one framework's models are made of their files, and first run."""

    load: Callable[[Verified], Loaded]
    warm: Callable[[Loaded, OutputManifest], Model]


def options(environment: Mapping[str, str], settings: RuntimeSettings) -> Options:
    """Read the environment.

    Raises:
        errors.UserError: a variable is missing, or PORT is not a port.
    """
    required = (
        names.MODEL_NAME_ENV,
        names.MODEL_VERSION_ENV,
        names.MODEL_DIR_ENV,
        names.MODEL_DIGEST_ENV,
    )
    if missing := [name for name in required if not environment.get(name)]:
        raise errors.UserError(f"{', '.join(missing)}: must be set")
    name, version, directory, digest = (environment[name] for name in required)
    port = environment.get("PORT") or str(settings.port)
    if not port.isdigit() or int(port) > 65535:
        raise errors.UserError(f"PORT: must be 0 to 65535, got {port!r}")
    return Options(name, version, Path(directory), digest, environment.get("HOST") or "127.0.0.1", int(port))


def main(platform: str, framework: Callable[[], Framework[Loaded]]) -> int:
    """Serve one model; return the exit status: 0 told to stop, 1 it cannot be served, 2 the environment is wrong.

    Args:
        platform: the framework's name, for clients who ask.
        framework: imports it. Called once the numeric libraries' threads are limited and the files are verified.
    """
    format_ = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=format_, stream=sys.stderr, force=True)
    settings = RuntimeSettings()
    try:
        stopwatch = Stopwatch(os.environ.get(names.SPAWNED_ENV, ""))
        _run(options(os.environ, settings), settings, stopwatch, platform, framework)
    except errors.UserError as error:
        _log.error("%s", error)
        return 2
    except errors.Permanent as error:
        _log.error("%s: %s", error.reason, error)
        return 1
    return 0


def _run(
    chosen: Options,
    settings: RuntimeSettings,
    stopwatch: Stopwatch,
    platform: str,
    framework: Callable[[], Framework[Loaded]],
) -> None:
    # After `limit_threads`, and only once there is something to serve: these import NumPy and the framework.
    forked = "numpy" in sys.modules
    threads.limit_threads()
    from serving.runtimes import loading  # noqa: PLC0415

    stopwatch.end("import")
    files = loading.verified(chosen.directory, chosen.digest)
    stopwatch.end("verify")
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    import uvloop  # noqa: PLC0415

    from serving.runtimes.app import Identity, InferenceApp  # noqa: PLC0415
    from serving.runtimes.serve import serve  # noqa: PLC0415

    made = framework()
    if forked:
        threads.raise_threads(os.environ)
        _reseed()
    stopwatch.end("import")
    loaded = made.load(files)
    stopwatch.end("load")
    model = made.warm(loaded, files.output)
    stopwatch.end("warmup")
    identity = Identity(platform, chosen.name, chosen.version, stopwatch.startup)
    with ThreadPoolExecutor(1, thread_name_prefix="model") as worker:
        app = InferenceApp(model, identity, settings, worker)
        _log.info("%s version %s, %s", chosen.name, chosen.version, chosen.digest)
        uvloop.run(serve(app, identity, settings, chosen.host, chosen.port))


def _reseed() -> None:
    """Give this process random numbers of its own; Python's `random` sees to itself."""
    import numpy as np  # noqa: PLC0415 as above

    np.random.seed()  # noqa: NPY002 the global generator is what inherited its state
    if torch := sys.modules.get("torch"):
        torch.seed()
