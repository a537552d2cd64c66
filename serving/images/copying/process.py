"""The process of the init container: reads the environment, copies, and ends with the reason of a failure.

Environment: SLIPWAY_MODEL_IMAGE (the image by digest), SLIPWAY_MODEL_FILES_DIGEST, SLIPWAY_MODEL_VOLUME (the
volume's path), SLIPWAY_PULL_SECRETS (names of the Pod's pull Secrets, separated by commas) and
SLIPWAY_PULL_SECRETS_DIR (the directory of their files).
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from serving import errors
from serving.images import container_process
from serving.images.copying import model_copy
from serving.images.copying.copied_files import CopiedFiles
from serving.images.pull_secrets import PullSecrets
from serving.images.registry import Reference, Registry
from serving.resources import names

_READABLE = 0o022
"""Umask: the server that reads the files may have another user."""


def main(environment: Mapping[str, str]) -> int:
    """Copy the model; return the exit status.

    The last line of a failure is its reason, which becomes the container's termination message.
    """
    container_process.configure_logging()
    os.umask(_READABLE)
    try:
        asyncio.run(_until_terminated(environment))
    except (errors.Permanent, errors.Temporary) as error:
        return _failed(error.reason, error)
    except OSError as error:
        return _failed("VolumeFailed", error)
    return 0


def _failed(reason: str, error: Exception) -> int:
    sys.stderr.write(f"{container_process.failure_message(reason, error)}\n")
    return 1


async def _until_terminated(environment: Mapping[str, str]) -> None:
    """Copy until SIGTERM, which the first process of a container ignores without a handler."""
    copying = asyncio.create_task(_copy(environment))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, copying.cancel)
    try:
        await copying
    except asyncio.CancelledError:
        # Threads that hash the files cannot be cancelled, and the end of the event loop waits for them.
        os._exit(container_process.TERMINATED)


async def _copy(environment: Mapping[str, str]) -> None:
    reference = Reference.parse(container_process.required(environment, names.MODEL_IMAGE_ENV))
    files_digest = container_process.required(environment, names.MODEL_FILES_DIGEST_ENV)
    target = CopiedFiles(Path(container_process.required(environment, names.MODEL_VOLUME_ENV)))
    secrets = PullSecrets.of(environment)
    try:
        async with Registry(secrets.credentials) as registry:
            await model_copy.copy(registry, reference, target, files_digest)
    except errors.Permanent as error:
        raise secrets.explain(error) from error


if __name__ == "__main__":
    sys.exit(main(os.environ))
