"""Prepares a process for background computation: low priority, and ends with its parent."""

import multiprocessing
import os
import threading

_NICENESS = 10
"""Processes that answer requests, or are measured, have precedence."""


def yield_to_parent() -> None:
    """Lower the priority of this process, and end it when its parent ends, even by SIGKILL."""
    os.nice(_NICENESS)
    parent = multiprocessing.parent_process()
    assert parent is not None, "started by multiprocessing"

    def end_with_parent() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
