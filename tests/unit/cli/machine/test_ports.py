"""The ports of `up`, chosen on real sockets."""

import socket
from pathlib import Path

from serving.cli.machine import ports
from serving.data_dir import DataDir
from serving.settings import DEFAULTS


def free() -> int:
    with socket.socket() as probe:
        probe.bind((DEFAULTS.api.host, 0))
        return int(probe.getsockname()[1])


def test_a_kubeconfig_is_deleted_when_the_port_changes(tmp_path: Path) -> None:
    where = DataDir(tmp_path)
    first = ports.choose(where, DEFAULTS, free(), free())
    where.kubeconfig.write_text("{}")
    assert ports.choose(where, DEFAULTS, None, None) == first
    assert where.kubeconfig.exists()
    assert ports.choose(where, DEFAULTS, free(), None) != first
    assert not where.kubeconfig.exists()
