"""The life of a runtime's process: read the environment, verify the files, load the model, serve until
SIGTERM.

Works alike in a new process and in one that was forked with everything imported: importing this module, or
that of a runtime, reads no environment, starts no thread and opens nothing. Independent
of frameworks.

Environment: SLIPWAY_MODEL_NAME, SLIPWAY_MODEL_VERSION, SLIPWAY_MODEL_DIR, SLIPWAY_MODEL_DIGEST,
SLIPWAY_MODEL_FILES_DIGEST (all required), SLIPWAY_MODEL_SEALED (see `loading`), HOST (127.0.0.1), PORT
(8080), LISTEN_FDS and LISTEN_PID (a socket in place of host and port), SLIPWAY_BATCH_SIZE (rows in one
prediction), SLIPWAY_BATCH_TIMEOUT (0ms: longest wait of a request for others).
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from serving import errors, runtime_variables
from serving.resources import names
from serving.resources.formats import duration
from serving.runtimes import loading, threads
from serving.runtimes.startup import StartupReport, Stopwatch
from serving.settings import RuntimeSettings
from serving.system.network import descriptors

if TYPE_CHECKING:
    import socket
    from concurrent.futures import Executor

    from serving.images.documents.output_manifest import OutputManifest
    from serving.runtimes.batching.predictions import Predictions
    from serving.runtimes.model import LoadedModel
    from serving.runtimes.serve import Application
    from serving.runtimes.served_model import ServedModel

PRELOAD = (
    "concurrent.futures.thread",
    "encodings.idna",
    "threadpoolctl",
    "uvloop",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "serving.runtimes.open_inference.app",
    "serving.runtimes.serve",
)
"""Modules, besides the framework's, that every runtime has imported once it has answered a request."""

INVALID_ENVIRONMENT = "InvalidEnvironment"
"""Reason of an end because of a variable."""

Loaded = TypeVar("Loaded")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The values of the environment, validated."""

    name: str
    version: str
    directory: Path
    digest: str
    """Of the image's manifest."""
    files_digest: str
    """Of `files.json`, the list of the image's files."""
    is_sealed: bool
    """Whether the node has just checked the seal of the image."""
    host: str
    port: int
    listeners: int
    """Sockets that the process has been passed, sd_listen_fds(3); with one, host and port are not used."""
    batch_size: int | None
    """Rows in one prediction, or sequences that are generated together; None for the runtime's default."""
    batch_timeout: float
    """Seconds for which a request waits for others."""


@dataclass(frozen=True)
class Framework(Generic[Loaded]):
    """How models of one framework are loaded from their files, and run for the first time."""

    load: Callable[[loading.VerifiedModel], Loaded]
    warm: Callable[[Loaded, OutputManifest], Any]
    """Returns the model that `Runtime.application` serves."""


@dataclass(frozen=True)
class Runtime(Generic[Loaded]):
    """A runtime, which imports its framework only when `framework` is called."""

    platform: str
    """The framework's name in the metadata of the model."""
    files: loading.ModelFiles
    framework: Callable[[], Framework[Loaded]]
    """Imports the framework; called after the threads of numeric libraries are limited and the files are
    verified."""
    application: Callable[[Any, ServedModel, Options, RuntimeSettings], AbstractContextManager[Application]]
    """Returns the server of the model that `Framework.warm` returned."""


def options(environment: Mapping[str, str], settings: RuntimeSettings) -> Options:
    """Read the environment.

    Raises:
        errors.UserError: a variable is missing or invalid.
    """
    required = (
        names.MODEL_NAME_ENV,
        names.MODEL_VERSION_ENV,
        names.MODEL_DIR_ENV,
        names.MODEL_DIGEST_ENV,
        names.MODEL_FILES_DIGEST_ENV,
    )
    if missing := [name for name in required if not environment.get(name)]:
        raise errors.UserError(f"{', '.join(missing)}: must be set")
    name, version, directory, digest, files_digest = (environment[name] for name in required)
    port = environment.get("PORT") or str(settings.port)
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise errors.UserError(f"PORT: must be 0 to 65535, got {port!r}")
    batch_size = environment.get(names.BATCH_SIZE_ENV)
    if batch_size and (not batch_size.isdecimal() or int(batch_size) < 1):
        raise errors.UserError(f"{names.BATCH_SIZE_ENV}: must be a number of 1 or more, got {batch_size!r}")
    passed = environment.get("LISTEN_FDS", "0") if environment.get("LISTEN_PID") == str(os.getpid()) else "0"
    try:
        batch_timeout = duration.seconds(environment.get(names.BATCH_TIMEOUT_ENV) or "0ms")
    except ValueError as error:
        raise errors.UserError(f"{names.BATCH_TIMEOUT_ENV}: {error}") from error
    return Options(
        name,
        version,
        Path(directory),
        digest,
        files_digest,
        is_sealed=environment.get(names.MODEL_SEALED_ENV) == digest,
        host=environment.get("HOST") or _default_host(environment),
        port=int(port),
        listeners=int(passed),
        batch_size=int(batch_size) if batch_size else None,
        batch_timeout=batch_timeout,
    )


def _default_host(environment: Mapping[str, str]) -> str:
    """Return loopback; in a Pod of a cluster the wildcard address, so that the gateways reach it.

    The wildcard is of IPv6 where the API's address is.
    """
    api = environment.get("KUBERNETES_SERVICE_HOST")
    if not api:
        return "127.0.0.1"
    return "::" if ":" in api else "0.0.0.0"  # noqa: S104 of the Pod's own network


def main(runtime: Runtime[Any]) -> int:
    """Serve one model; return the exit status: 0 stopped, 1 unusable model, 2 invalid environment."""
    format_ = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=format_, stream=sys.stderr, force=True)
    try:
        settings = runtime_variables.read(os.environ)
        stopwatch = Stopwatch()
        process_options = options(os.environ, settings)
        model = _loaded(runtime, process_options, stopwatch)
        _serve(model, runtime, stopwatch.startup, process_options, settings)
    except errors.UserError as error:
        _print_reason(INVALID_ENVIRONMENT, error)
        return 2
    except errors.Permanent as error:
        _print_reason(error.reason, error)
        return 1
    return 0


def _print_reason(reason: str, error: Exception) -> None:
    """Print why the process ends, as the last line of its log: the Pod's termination message ends with it.

    The planner reads it (`serving.planning.inference.replicas`), so it is one line without a timestamp.
    """
    sys.stderr.write(f"{reason}: {' '.join(str(error).split())}\n")


def _loaded(runtime: Runtime[Loaded], options: Options, stopwatch: Stopwatch) -> Any:
    """Return the model, verified, loaded and run once."""
    files = loading.verify(
        options.directory, options.files_digest, runtime.files, is_sealed=options.is_sealed
    )
    stopwatch.end("verify")
    is_forked = "numpy" in sys.modules  # a new process has not imported it yet
    threads.limit_threads()
    # After the files are verified and threads are limited, as this imports NumPy and the framework.
    for name in PRELOAD:
        importlib.import_module(name)
    framework = runtime.framework()
    if is_forked:  # the zygote had loaded the libraries with its own limit of one thread
        threads.raise_threads(os.environ)
        _reseed()
    stopwatch.end("import")
    loaded = framework.load(files)
    files.close()
    stopwatch.end("load")
    model = framework.warm(loaded, files.output)
    # These objects live as long as the process; a collection that visits them stalls all requests in flight.
    gc.freeze()
    stopwatch.end("warmup")
    return model


def _serve(
    model: Any, runtime: Runtime[Any], startup: StartupReport, options: Options, settings: RuntimeSettings
) -> None:
    import uvloop  # noqa: PLC0415 imported in `_loaded`

    from serving.runtimes.serve import serve  # noqa: PLC0415 as above
    from serving.runtimes.served_model import ServedModel  # noqa: PLC0415 as above

    served = ServedModel(runtime.platform, options.name, options.version, startup)
    with runtime.application(model, served, options, settings) as app:
        listener = listen(options, settings.backlog)
        _log.info("%s version %s, %s", options.name, options.version, options.digest)
        uvloop.run(serve(app, served, settings, listener))


@contextmanager
def tensor_application(
    model: LoadedModel, served: ServedModel, options: Options, settings: RuntimeSettings
) -> Iterator[Application]:
    """Yield the server of a model of tensors, by the Open Inference Protocol; stop its threads at the end."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 imported in `_loaded`

    from serving.runtimes import request_memory  # noqa: PLC0415 as above
    from serving.runtimes.large_requests import LargeRequests  # noqa: PLC0415 as above
    from serving.runtimes.open_inference.app import InferenceApp  # noqa: PLC0415 as above

    with (
        ThreadPoolExecutor(1, "model", threads.raise_openmp, (os.environ,)) as worker,
        ThreadPoolExecutor(1, "codec") as codec,
    ):
        predictions = _predictions(model, options, settings, worker)
        large = LargeRequests(request_memory.bounds(settings), codec)
        yield InferenceApp(model, served, settings, predictions, large)


def listen(options: Options, backlog: int) -> socket.socket:
    """Return the socket that the process has been passed, or a new one at its host and port."""
    import socket  # noqa: PLC0415 imported in `_loaded`

    if options.listeners:
        return socket.socket(fileno=descriptors.FIRST_PASSED)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    return socket.create_server((options.host, options.port), family=family, backlog=backlog)


def _predictions(
    model: LoadedModel, options: Options, settings: RuntimeSettings, worker: Executor
) -> Predictions:
    from serving.runtimes.batching import batches, predictions  # noqa: PLC0415 imported in `_loaded`
    from serving.runtimes.batching.batch_queue import BatchQueue  # noqa: PLC0415 as above

    if (options.batch_size or 1) > 1:
        obstacle = batches.obstacle(model.inputs, model.outputs)
        if not obstacle:
            queue = BatchQueue(options.batch_size or 1, options.batch_timeout, settings.waiting)
            return predictions.BatchedPredictions(model, settings, worker, queue)
        _log.warning("%s: each request is predicted by itself: %s", names.BATCH_SIZE_ENV, obstacle)
    return predictions.SinglePredictions(model, settings, worker)


def _reseed() -> None:
    """Seed the generators of NumPy and PyTorch in a fork; Python's `random` does so itself."""
    import numpy as np  # noqa: PLC0415 as above

    np.random.seed()  # noqa: NPY002 the global generator inherited its parent's state
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
