"""A component answers while its event loop runs, and passes its sockets with each answer."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.embedded.supervisor import liveness
from serving.embedded.supervisor.supervisor import SupervisedComponent, Supervisor
from serving.settings import SupervisorSettings
from serving.system import processes
from serving.system.network import kept_sockets, sockets
from serving.system.network.kept_sockets import KeptSockets, Place
from serving.system.processes import ProcessIdentity
from tests.rig.machine.addresses import own

ADDRESS = own(99)
PORT = 18_499
SECONDS = 5.0
"""Longest wait for an answer, which takes milliseconds."""


FIRST, SECOND = ProcessIdentity("boot", 1, 1), ProcessIdentity("boot", 2, 2)


def answer(*numbers: int) -> liveness.LivenessAnswer:
    """Return an answer with reserved ports."""
    return liveness.LivenessAnswer(
        [sockets.reserve(ADDRESS, port).detach() for port in numbers], is_complete=True
    )


def ports(component: SupervisedComponent) -> set[int]:
    return {place.port for place in component.kept.places}


@pytest.fixture
def component() -> Iterator[SupervisedComponent]:
    made = SupervisedComponent("node", FIRST)
    with closing(made.kept):
        yield made


@pytest.fixture
def kept() -> Iterator[KeptSockets]:
    with closing(KeptSockets()) as made:
        yield made


async def test_sockets_are_passed_with_each_answer_and_remain_bound_when_the_component_closes_them(
    tmp_path: Path, kept: KeptSockets
) -> None:
    path = tmp_path / "node.sock"
    with closing(KeptSockets()) as of_component:
        async with liveness.answering(path, of_component.to_pass):
            assert await liveness.ask(path, SECONDS) == liveness.LivenessAnswer([], is_complete=True)
            place = of_component.add(sockets.reserve(ADDRESS, PORT))
            answer = await liveness.ask(path, SECONDS)
            assert answer is not None
            assert answer.is_complete
            kept.replace(answer.descriptors)
    assert not any(os.get_inheritable(descriptor) for descriptor in kept.to_pass())
    assert kept.places == [place] == [Place(os.getuid(), ADDRESS, PORT)]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((ADDRESS, PORT))


async def test_answer_is_a_part_when_there_is_no_room_for_all_descriptors(
    tmp_path: Path, kept: KeptSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "node.sock"
    kept.join(sockets.reserve(ADDRESS, PORT + number).detach() for number in range(9))
    to_pass = kept.to_pass()
    monkeypatch.setattr(kept_sockets, "MOST_PASSED", 3)
    async with liveness.answering(path, lambda: to_pass):
        answer = await liveness.ask(path, SECONDS)
    assert answer is not None
    assert not answer.is_complete
    with closing(KeptSockets(answer.descriptors)) as received:
        assert 0 < len(received.places) < 9


async def test_there_is_no_answer_when_the_component_hangs_or_has_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    assert await liveness.ask(path, SECONDS) is None
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(path))
        hung.listen()
        assert await liveness.ask(path, 0.1) is None


async def test_component_answers_again_when_a_supervisor_has_closed_its_connection(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    async with liveness.answering(path, list):
        with socket.socket(socket.AF_UNIX) as impatient:
            impatient.connect(str(path))
        assert await liveness.ask(path, SECONDS) == liveness.LivenessAnswer([], is_complete=True)


def test_supervisor_keeps_the_newest_answer_when_the_process_that_was_asked_still_runs(
    component: SupervisedComponent,
) -> None:
    component.note_answer(answer(PORT, PORT + 1), FIRST)
    component.note_answer(answer(PORT + 1), FIRST)
    assert ports(component) == {PORT + 1}


def test_pod_between_two_ends_of_the_node_is_kept_when_its_answer_is_read_after_the_end(
    component: SupervisedComponent,
) -> None:
    component.note_answer(answer(PORT, PORT + 1), FIRST)
    component.identity = None
    component.note_answer(answer(PORT + 1, PORT + 2), FIRST)
    assert ports(component) == {PORT, PORT + 1, PORT + 2}
    component.identity = SECOND
    component.note_answer(answer(PORT, PORT + 2), SECOND)
    assert ports(component) == {PORT, PORT + 2}


def test_other_places_are_kept_when_an_answer_is_a_part(component: SupervisedComponent) -> None:
    component.note_answer(answer(PORT), FIRST)
    component.note_answer(answer(PORT + 1)._replace(is_complete=False), FIRST)
    assert ports(component) == {PORT, PORT + 1}
    assert component.answered is not None


def test_component_has_not_answered_when_the_answer_is_its_predecessors(
    component: SupervisedComponent,
) -> None:
    component.identity = SECOND
    component.note_answer(answer(PORT), FIRST)
    assert component.answered is None


async def test_sockets_are_freed_when_their_component_is_stopped(tmp_path: Path) -> None:
    supervisor = Supervisor(DataDir(tmp_path), (), SupervisorSettings())
    stopped = supervisor._components["gateway"]
    process = await asyncio.create_subprocess_exec("/bin/sleep", "600")
    stopped.identity = processes.identity_of(process.pid)
    stopped.note_answer(answer(PORT), stopped.identity)
    await asyncio.gather(supervisor.stop("gateway"), process.wait())
    assert ports(stopped) == set()


async def test_sockets_are_freed_when_their_component_is_stopped_between_two_restarts(
    tmp_path: Path,
) -> None:
    supervisor = Supervisor(DataDir(tmp_path), (), SupervisorSettings())
    stopped = supervisor._components["gateway"]
    stopped.identity = FIRST
    stopped.note_answer(answer(PORT), FIRST)
    stopped.identity = None
    await supervisor.stop("gateway")
    assert ports(stopped) == set()
