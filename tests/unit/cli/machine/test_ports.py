"""The ports of `up`, chosen on real sockets."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from serving import errors
from serving.cli.machine import ports
from serving.data_dir import DataDir
from serving.settings import DEFAULTS
from tests.rig.machine import port_thief

ELSEWHERE = "203.0.113.9"
"""An address that no machine has: TEST-NET-3, RFC 5737."""


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


@pytest.mark.parametrize("section", ["api", "gateway"])
def test_host_is_refused_with_the_reason_when_nothing_can_listen_on_it(section: str, tmp_path: Path) -> None:
    where = DataDir(tmp_path)
    settings = replace(DEFAULTS, **{section: replace(getattr(DEFAULTS, section), host=ELSEWHERE)})
    message = f"^{section}.host: must be .*, got '{ELSEWHERE}': Cannot assign requested address$"
    with pytest.raises(errors.UserError, match=message):
        ports.choose(where, settings, free(), None)
    assert not where.ports.exists()


def test_port_is_refused_when_another_program_has_it(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind((DEFAULTS.api.host, 0))
        port = other.getsockname()[1]
        with pytest.raises(errors.UserError, match=f"^port {port} on {DEFAULTS.api.host} is in use; "):
            ports.choose(DataDir(tmp_path), DEFAULTS, port, free())


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
