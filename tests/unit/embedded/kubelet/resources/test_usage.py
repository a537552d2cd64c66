"""The processes of the machine, as the usage of containers reads them."""

import os
from pathlib import Path

from serving.embedded.kubelet.resources import usage


def test_processes_are_read_when_a_name_is_cut_in_the_middle_of_a_character() -> None:
    comm = Path("/proc/self/comm")
    before = comm.read_bytes()
    comm.write_bytes("приложение".encode()[:15])  # as the kernel cuts the name of an executable
    try:
        assert os.getpid() in usage._processes()
    finally:
        comm.write_bytes(before.rstrip(b"\n"))
