"""Environment, log and exit status of the containers' processes that copy a model or capture an output.

Must not import the copying or the capturing: each process loads only its own.
"""

import logging
import signal
import sys
from collections.abc import Mapping

from serving import errors

TERMINATED = 128 + signal.SIGTERM
"""Exit status of a process that SIGTERM has ended, as a shell reports it."""


def configure_logging() -> None:
    """Write the log to standard error, which is the container's log."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr, force=True
    )


def required(environment: Mapping[str, str], name: str) -> str:
    """Return the value of a variable.

    Raises:
        errors.Permanent: `InvalidEnvironment` if the variable is unset or empty.
    """
    value = environment.get(name, "")
    if not value:
        raise errors.Permanent("InvalidEnvironment", f"{name}: must be set")
    return value


def failure_message(reason: str, error: Exception) -> str:
    """Return `Reason: message` in one line: the termination message of a failure."""
    return f"{reason}: {' '.join(str(error).split())}"
