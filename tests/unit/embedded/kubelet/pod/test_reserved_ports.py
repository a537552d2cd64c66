"""An agent holds the ports of its Pods, those of the last agent included, until the Pods are gone."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from serving import errors
from serving.embedded.kubelet.pod.reserved_ports import ReservedPorts
from serving.embedded.pod_spec.pod_identity import PodIdentity
from serving.system.network import sockets
from serving.system.network.kept_sockets import ALL_OF_IPV6, KeptSockets, Place
from tests.rig.machine.addresses import own

ADDRESS = own(98)
SECONDS = 60.0
USER = os.getuid()
POD, SAME_USER = PodIdentity(ADDRESS, USER), PodIdentity("127.0.0.1", USER)

pytestmark = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this kernel has no IPv6")


@pytest.fixture
def kept() -> Iterator[KeptSockets]:
    with closing(KeptSockets()) as made:
        yield made


@pytest.fixture
def port() -> int:
    """A port that is free at all addresses."""
    return sockets.try_port("::", 0)


def places(port: int, *identities: PodIdentity) -> set[Place]:
    return {Place(USER, address, port) for address in (ALL_OF_IPV6, *(i.address for i in identities))}


def inodes(kept: KeptSockets) -> list[int]:
    """Identify the sockets; the numbers of descriptors are soon used again."""
    return [os.fstat(descriptor).st_ino for descriptor in kept.to_pass()]


@pytest.mark.parametrize("pod", [POD, PodIdentity(ADDRESS, None)], ids=["own-user", "user-of-the-agent"])
def test_sockets_of_the_last_agent_are_used_when_their_pod_is_adopted(
    kept: KeptSockets, port: int, pod: PodIdentity
) -> None:
    ReservedPorts(kept, SECONDS).reserve(pod, [port])
    inherited = inodes(kept)
    successor = ReservedPorts(kept, SECONDS)
    successor.adopt([pod], 0.0)
    successor.reserve(pod, [port])
    assert inodes(kept) == inherited
    assert set(kept.places) == places(port, POD)


def test_port_is_kept_for_a_time_when_its_pod_is_gone(kept: KeptSockets, port: int) -> None:
    """A gateway that hangs still connects to it."""
    ports = ReservedPorts(kept, SECONDS)
    ports.reserve(POD, [port])
    ports.release(POD, 100.0)
    ports.free_ended(100.0 + SECONDS - 1)
    assert set(kept.places) == places(port, POD)
    ports.free_ended(100.0 + SECONDS)
    assert kept.places == []


def test_sockets_of_a_pod_without_a_record_are_kept_for_a_time_when_the_agent_is_another(
    kept: KeptSockets, port: int
) -> None:
    ReservedPorts(kept, SECONDS).reserve(POD, [port])
    successor = ReservedPorts(kept, SECONDS)
    successor.adopt([PodIdentity(ADDRESS, USER + 1)], 100.0)
    assert set(kept.places) == places(port, POD)
    successor.free_ended(100.0 + SECONDS)
    assert kept.places == []


@pytest.mark.root
@pytest.mark.skipif(USER != 0, reason="only root reserves ports for another user")
def test_new_pod_has_the_port_at_once_when_the_last_pod_of_its_address_is_gone(
    kept: KeptSockets, port: int
) -> None:
    ports = ReservedPorts(kept, SECONDS)
    ports.reserve(PodIdentity(ADDRESS, 61_234), [port])
    ports.release(PodIdentity(ADDRESS, 61_234), 100.0)
    ports.reserve(POD, [port])
    assert Place(USER, ADDRESS, port) in kept
    assert Place(61_234, ADDRESS, port) not in kept


def test_adopted_pod_is_freed_when_it_is_gone_before_its_ports_are_reserved_again(
    kept: KeptSockets, port: int
) -> None:
    ReservedPorts(kept, SECONDS).reserve(POD, [port])
    successor = ReservedPorts(kept, SECONDS)
    successor.adopt([POD], 0.0)
    successor.release(POD, 0.0)
    successor.free_ended(SECONDS)
    assert kept.places == []


def test_all_of_ipv6_is_kept_when_one_of_two_pods_of_a_user_is_gone(kept: KeptSockets, port: int) -> None:
    ports = ReservedPorts(kept, SECONDS)
    ports.reserve(POD, [port])
    ports.reserve(SAME_USER, [port])
    assert set(kept.places) == places(port, POD, SAME_USER)
    ports.release(POD, 0.0)
    ports.free_ended(SECONDS)
    assert set(kept.places) == places(port, SAME_USER)
    ports.release(SAME_USER, 0.0)
    ports.free_ended(SECONDS)
    assert kept.places == []


def test_port_is_kept_when_a_new_pod_of_the_user_reserves_it_before_the_old_one_is_freed(
    kept: KeptSockets, port: int
) -> None:
    ports = ReservedPorts(kept, SECONDS)
    ports.reserve(POD, [port])
    ports.release(POD, 0.0)
    ports.reserve(POD, [port])
    ports.free_ended(SECONDS)
    assert set(kept.places) == places(port, POD)


def test_address_is_reserved_and_the_pod_waits_when_a_process_has_the_port_of_all_of_ipv6(
    kept: KeptSockets, port: int
) -> None:
    ports = ReservedPorts(kept, SECONDS)
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", port))
        with pytest.raises(errors.Temporary, match=rf"^\[::\]:{port} is taken by a process"):
            ports.reserve(POD, [port])
    assert kept.places == [Place(USER, ADDRESS, port)]
    ports.reserve(POD, [port])
    assert set(kept.places) == places(port, POD)
