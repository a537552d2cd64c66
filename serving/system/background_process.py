"""What a process of ours that computes in the background does first, so that it neither disturbs nor outlives
its parent.
"""

import multiprocessing
import os
import threading

_NICENESS = 10
"""What answers requests, and what is measured, goes first."""


def yield_to_parent() -> None:
    """Lower the priority of this process, and end it when its parent ends, which may be killed at any moment."""
    os.nice(_NICENESS)
    parent = multiprocessing.parent_process()
    assert parent is not None, "started by multiprocessing"

    def end_with_parent() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
