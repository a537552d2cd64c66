"""The process of the container that captures an output: reads the environment, captures, and reports.

Environment: SLIPWAY_OUTPUT_DIR and SLIPWAY_OUTPUT_VOLUME (the directory, and the path of its volume),
SLIPWAY_CAPTURE_REPOSITORY, SLIPWAY_CAPTURE_STORE (a directory to write to), SLIPWAY_CAPTURE_FRAMEWORK,
SLIPWAY_CAPTURE_COMPRESSION, SLIPWAY_JOB_API_VERSION, SLIPWAY_JOB_KIND, SLIPWAY_JOB_NAME and SLIPWAY_JOB_UID
(the origin of the output; by default a Job of batch/v1),
SLIPWAY_PULL_SECRETS and SLIPWAY_PULL_SECRETS_DIR (logins), SLIPWAY_TERMINATION_LOG (the file of the result).
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from serving import errors
from serving.images import container_process
from serving.images.capturing.output_capture import CaptureSource, capture_to
from serving.images.pull_secrets import PullSecrets
from serving.images.registry import Reference, Registry
from serving.planning.models import capture, capture_job
from serving.resources import kinds, names

TERMINATION_LOG = "/dev/termination-log"
"""The file of a container whose content the kubelet reports."""
_LONGEST_MESSAGE = 2048
"""Most bytes of the termination message of a failure; the kubelet keeps 4096."""


def main(environment: Mapping[str, str]) -> int:
    """Capture the output; return the exit status: 0, `capture_job.REFUSED` if every other Pod would fail too,
    or 1 if a retry may succeed.

    The termination message is the result, or the reason of the failure as `Reason: message`, which is also
    the last line of the log.
    """
    container_process.configure_logging()
    log = Path(environment.get(names.TERMINATION_LOG_ENV) or TERMINATION_LOG)
    try:
        captured = asyncio.run(_until_terminated(environment))
    except errors.Permanent as error:
        return _failed(log, error.reason, error, capture_job.REFUSED)
    except errors.Temporary as error:
        return _failed(log, error.reason, error, 1)
    except OSError as error:
        return _failed(log, "VolumeFailed", error, 1)
    log.write_text(capture.encode(captured))
    return 0


def _failed(log: Path, reason: str, error: Exception, status: int) -> int:
    message = container_process.failure_message(reason, error)
    sys.stderr.write(f"{message}\n")
    log.write_bytes(message.encode()[:_LONGEST_MESSAGE].decode(errors="ignore").encode())
    return status


async def _until_terminated(environment: Mapping[str, str]) -> capture.Captured:
    """Capture until SIGTERM, which the first process of a container ignores without a handler."""
    # Exit at once: threads that read and hash cannot be cancelled, and the next capture begins anew.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, container_process.TERMINATED)
    return await _capture(environment)


async def _capture(environment: Mapping[str, str]) -> capture.Captured:
    target = Reference.parse(container_process.required(environment, names.CAPTURE_REPOSITORY_ENV))
    output = CaptureSource(
        path=Path(container_process.required(environment, names.OUTPUT_DIR_ENV)),
        volume=Path(container_process.required(environment, names.OUTPUT_VOLUME_ENV)),
        lineage={
            "apiVersion": environment.get(names.JOB_API_VERSION_ENV, kinds.JOB.api_version),
            "kind": environment.get(names.JOB_KIND_ENV, kinds.JOB.kind),
            "name": environment.get(names.JOB_NAME_ENV, ""),
            "uid": environment.get(names.JOB_UID_ENV, ""),
        },
        framework=environment.get(names.CAPTURE_FRAMEWORK_ENV, ""),
        compression=_compression(environment.get(names.CAPTURE_COMPRESSION_ENV) or "none"),
    )
    store = Path(container_process.required(environment, names.CAPTURE_STORE_ENV))
    secrets = PullSecrets.of(environment)
    try:
        async with Registry(secrets.credentials) as registry:
            return await capture_to(registry, target, output, store)
    except errors.Permanent as error:
        raise secrets.explain(error) from error


def _compression(text: str) -> Literal["none", "zstd"]:
    match text:
        case "none" | "zstd":
            return text
    raise errors.Permanent(
        "InvalidEnvironment", f"{names.CAPTURE_COMPRESSION_ENV}: must be none or zstd, not {text!r}"
    )


if __name__ == "__main__":
    sys.exit(main(os.environ))
