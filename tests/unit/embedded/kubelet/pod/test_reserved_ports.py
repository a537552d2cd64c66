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
from tests.rig.addresses import own

ADDRESS = own(98)
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
    ReservedPorts(kept).reserve(pod, [port])
    inherited = inodes(kept)
    successor = ReservedPorts(kept)
    successor.adopt([pod])
    successor.reserve(pod, [port])
    assert inodes(kept) == inherited
    assert set(kept.places) == places(port, POD)


def test_sockets_of_the_last_agent_are_freed_when_another_pod_has_the_address(
    kept: KeptSockets, port: int
) -> None:
    ReservedPorts(kept).reserve(POD, [port])
    ReservedPorts(kept).adopt([PodIdentity(ADDRESS, USER + 1)])
    assert kept.places == []


def test_adopted_pod_is_freed_when_it_is_gone_before_its_ports_are_reserved_again(
    kept: KeptSockets, port: int
) -> None:
    ReservedPorts(kept).reserve(POD, [port])
    successor = ReservedPorts(kept)
    successor.adopt([POD])
    successor.release(POD)
    assert kept.places == []


def test_all_of_ipv6_is_kept_when_one_of_two_pods_of_a_user_is_gone(kept: KeptSockets, port: int) -> None:
    ports = ReservedPorts(kept)
    ports.reserve(POD, [port])
    ports.reserve(SAME_USER, [port])
    assert set(kept.places) == places(port, POD, SAME_USER)
    ports.release(POD)
    assert set(kept.places) == places(port, SAME_USER)
    ports.release(SAME_USER)
    assert kept.places == []


def test_address_is_reserved_and_the_pod_waits_when_a_process_has_the_port_of_all_of_ipv6(
    kept: KeptSockets, port: int
) -> None:
    ports = ReservedPorts(kept)
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::", port))
        with pytest.raises(errors.Temporary, match=rf"^\[::\]:{port} is taken by a process"):
            ports.reserve(POD, [port])
    assert kept.places == [Place(USER, ADDRESS, port)]
    ports.reserve(POD, [port])
    assert set(kept.places) == places(port, POD)
