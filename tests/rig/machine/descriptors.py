"""A process that can open no more files, sockets and pidfds."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """Let this process open nothing during the block; what is open works."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
