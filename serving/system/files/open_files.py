"""The limit of open files of this process. Children inherit it; nothing here decides who needs many files."""

import resource

MOST = 65_536
"""Bounds a raised limit: some programs close each number up to their limit, and may have a billion."""


def set_limit(most: int = MOST) -> int:
    """Set the soft limit to `most`, or to the hard limit if that is lower, and return it.

    The soft limit is 1,024 on many systems, because of select(2).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
