"""Free ports, a range for each worker: two Envoys can bind one port, and then share its connections."""

import itertools
import os
import random
import socket

from tests.rig.machine.addresses import WORKER

_FIRST, _LAST = 10_000, 32_000
"""Below the ephemeral ports (32768 on Linux), of which the kernel gives any to a client at any moment."""
_EACH = 1_500
_ranges: dict[int, "itertools.cycle[int]"] = {}
"""By worker: this module is imported before the workers are forked."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of this worker that nobody has bound."""
    worker = int(os.environ.get(WORKER, "-1")) + 1
    if worker not in _ranges:
        first = _FIRST + worker * _EACH % (_LAST - _FIRST)
        numbers = list(range(first, first + _EACH))
        start = random.randrange(_EACH)
        _ranges[worker] = itertools.cycle(numbers[start:] + numbers[:start])
    for port in itertools.islice(_ranges[worker], _EACH):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port of {host} is free")
