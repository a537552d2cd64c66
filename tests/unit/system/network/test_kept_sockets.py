"""Sockets are kept by place: what two generations pass is joined, and no Pod displaces another."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.system.network import sockets
from serving.system.network.kept_sockets import (
    ALL_OF_IPV6,
    MOST_PASSED,
    KeptSockets,
    Place,
    first_ports_first,
)
from tests.rig.machine.addresses import own

ADDRESS = own(97)
PORT = 18_497
ME = os.getuid()
places = st.builds(
    Place, st.integers(1, 5), st.sampled_from(("127.0.0.1", "127.0.0.2", "::")), st.integers(1, 9)
)


@pytest.fixture
def kept() -> Iterator[KeptSockets]:
    with closing(KeptSockets()) as made:
        yield made


def passed(port: int = PORT) -> int:
    """Return the descriptor of a reserved port, as another process passes it."""
    return sockets.reserve(ADDRESS, port).detach()


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@given(st.lists(places, unique=True))
def test_every_place_is_in_the_order_once(places: list[Place]) -> None:
    assert sorted(first_ports_first(places)) == sorted(places)


@given(st.lists(places, unique=True))
def test_second_port_of_a_user_comes_after_the_first_ports_of_all(places: list[Place]) -> None:
    ordered = first_ports_first(places)
    first = {place.user: place.port for place in reversed(places)}
    ranks = [place.port != first[place.user] for place in ordered]
    assert ranks == sorted(ranks)


def test_pod_with_many_ports_displaces_no_other_when_not_all_fit() -> None:
    greedy = [Place(1, "127.0.0.1", port) for port in range(1, 301)]
    modest = [Place(2, "127.0.0.2", 80), Place(2, ALL_OF_IPV6, 80)]
    assert set(first_ports_first([*greedy, *modest])[:MOST_PASSED]) >= set(modest)


def test_at_most_the_descriptors_of_a_message_are_passed_when_more_are_kept(kept: KeptSockets) -> None:
    kept.join(passed(PORT + n) for n in range(MOST_PASSED + 1))
    assert len(kept.places) == MOST_PASSED + 1
    assert len(kept.to_pass()) == MOST_PASSED


def test_places_of_both_are_kept_when_two_lists_are_joined(kept: KeptSockets) -> None:
    kept.join([passed(PORT), passed(PORT + 1)])
    kept.join([passed(PORT + 2), passed(PORT)])
    assert {place.port for place in kept.places} == {PORT, PORT + 1, PORT + 2}


def test_older_socket_is_closed_when_its_place_comes_again(kept: KeptSockets) -> None:
    kept.join([older := passed()])
    kept.join([newer := passed()])
    assert kept.to_pass() == [newer]
    assert not is_open(older)


def test_other_places_are_freed_when_the_list_is_replaced(kept: KeptSockets) -> None:
    kept.join([gone := passed(PORT + 1), passed()])
    kept.replace([passed()])
    assert kept.places == [Place(ME, ADDRESS, PORT)]
    assert not is_open(gone)


def test_sockets_of_all_of_ipv6_have_one_place_whatever_their_random_addresses(kept: KeptSockets) -> None:
    first, second = sockets.keep_all_of_ipv6(PORT), sockets.keep_all_of_ipv6(PORT)
    if first is None or second is None:
        pytest.skip("this kernel has no IPv6")
    assert first.getsockname()[0] != second.getsockname()[0]
    assert kept.add(first) == kept.add(second) == Place(ME, ALL_OF_IPV6, PORT)
    assert kept.places == [Place(ME, ALL_OF_IPV6, PORT)]


def test_everything_is_freed_when_it_is_closed() -> None:
    kept = KeptSockets([passed()])
    kept.close()
    with socket.create_server((ADDRESS, PORT)):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reserves ports for other users")
def test_place_names_the_user_for_whom_the_port_is_reserved(kept: KeptSockets) -> None:
    assert kept.add(sockets.reserve(ADDRESS, PORT, 65534)) == Place(65534, ADDRESS, PORT)
