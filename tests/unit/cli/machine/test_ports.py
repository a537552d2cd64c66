"""The ports of `up`, chosen on real sockets."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from serving.cli.machine import ports
from serving.data_dir import DataDir
from serving.settings import DEFAULTS
from tests.rig.machine import port_thief


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts a process of another user")
def test_no_other_user_can_bind_the_reserved_ports_at_any_address(tmp_path: Path) -> None:
    api, gateway = ports.choose(DataDir(tmp_path), DEFAULTS, free(), free())
    settings = replace(
        DEFAULTS, api=replace(DEFAULTS.api, port=api), gateway=replace(DEFAULTS.gateway, port=gateway)
    )
    with ports.reserved(settings):
        assert port_thief.ways_to_bind(settings.api.host, api) == []
        assert port_thief.ways_to_bind(settings.gateway.host, gateway) == []
    assert port_thief.ways_to_bind(settings.gateway.host, gateway)
