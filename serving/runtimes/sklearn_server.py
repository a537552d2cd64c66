"""The scikit-learn runtime: `python -m serving.runtimes.sklearn_server`, one model, one process.

Environment: SLIPWAY_MODEL_NAME, SLIPWAY_MODEL_VERSION, SLIPWAY_MODEL_DIR, SLIPWAY_MODEL_DIGEST (all required),
HOST (127.0.0.1), PORT (8080). Listens when the model has been verified, loaded and run once.
"""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving import errors
from serving.runtimes.threads import limit_threads
from serving.settings import RuntimeSettings

_log = logging.getLogger("sklearn_server")


@dataclass(frozen=True)
class Options:
    """The environment, checked."""

    name: str
    version: str
    directory: Path
    digest: str
    host: str
    port: int


def options(environment: Mapping[str, str], settings: RuntimeSettings) -> Options:
    """Read the environment.

    Raises:
        errors.UserError: a variable is missing, or PORT is not a port.
    """
    names = ("SLIPWAY_MODEL_NAME", "SLIPWAY_MODEL_VERSION", "SLIPWAY_MODEL_DIR", "SLIPWAY_MODEL_DIGEST")
    if missing := [name for name in names if not environment.get(name)]:
        raise errors.UserError(f"{', '.join(missing)}: must be set")
    name, version, directory, digest = (environment[name] for name in names)
    port = environment.get("PORT") or str(settings.port)
    if not port.isdigit() or int(port) > 65535:
        raise errors.UserError(f"PORT: must be 0 to 65535, got {port!r}")
    return Options(name, version, Path(directory), digest, environment.get("HOST") or "127.0.0.1", int(port))


def run(chosen: Options, settings: RuntimeSettings) -> None:
    """Verify, load and serve until told to stop.

    Raises:
        errors.Permanent: the files are not the digest's, or not a model that this runtime serves.
    """
    # After `limit_threads`, and only once there is something to serve: these import NumPy and scikit-learn.
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    import uvloop  # noqa: PLC0415

    from serving.runtimes import loading  # noqa: PLC0415

    found = loading.verified(chosen.directory, chosen.digest)
    model = loading.estimator(found.pickle)
    from serving.runtimes.app import Identity, InferenceApp  # noqa: PLC0415
    from serving.runtimes.estimator import Estimator  # noqa: PLC0415
    from serving.runtimes.serve import serve  # noqa: PLC0415

    estimator = Estimator(model, found.output)
    identity = Identity(chosen.name, chosen.version)
    with ThreadPoolExecutor(1, thread_name_prefix="model") as worker:
        app = InferenceApp(estimator, identity, settings, worker)
        _log.info("%s version %s, %s", chosen.name, chosen.version, chosen.digest)
        uvloop.run(serve(app, identity, settings, chosen.host, chosen.port))


def main() -> int:
    """Return the exit status: 0 told to stop, 1 the model cannot be served, 2 the environment is wrong."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    limit_threads()
    settings = RuntimeSettings()
    try:
        run(options(os.environ, settings), settings)
    except errors.UserError as error:
        _log.error("%s", error)
        return 2
    except errors.Permanent as error:
        _log.error("%s: %s", error.reason, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
