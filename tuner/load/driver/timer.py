"""A timer that is exact to a tenth of a millisecond.

libev's timers round up to whole milliseconds, which an open loop would count as latency of the target.
"""

import ctypes
import os
import struct
import time

from gevent import get_hub

_TFD_TIMER_ABSTIME = 1  # <sys/timerfd.h>
_READ = 1  # of libev's watchers
_PAST = 1e-9
"""A moment in the past; a timer of 0 would be disarmed."""


class Timer:
    """A timerfd on the monotonic clock for one waiting greenlet; it is closed with the process."""

    def __init__(self) -> None:
        """Open the timer."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = self._libc.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._watcher = get_hub().loop.io(self._descriptor, _READ)

    def wait_until(self, moment: float) -> None:
        """Wait until `moment`, in seconds of the monotonic clock, or until `wake`."""
        self._set(moment)
        get_hub().wait(self._watcher)
        os.read(self._descriptor, 8)

    def wake(self) -> None:
        """Wake the waiting greenlet."""
        self._set(_PAST)

    def _set(self, moment: float) -> None:
        seconds, part = divmod(moment, 1)
        # At least 1 ns, so that rounding cannot make `_PAST` a time of 0.
        value = struct.pack("@qqqq", 0, 0, int(seconds), max(1, int(part * 1e9)))
        if self._libc.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, value, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
