import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from serving import clock
from serving.system import processes
from serving.system.process_exit import has_ended_within


def test_recycled_pid_is_neither_alive_nor_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        identity = processes.identity_of(child.pid)
        assert identity is not None
        for stranger in (
            replace(identity, start_time=identity.start_time - 1),
            replace(identity, boot_id=""),
        ):
            assert not processes.is_alive(stranger)
            assert processes.open_pidfd(stranger) is None
            assert not processes.send_signal(stranger, signal.SIGKILL)
        assert child.poll() is None
        assert processes.send_signal(identity, signal.SIGKILL)
    assert not processes.send_signal(identity, signal.SIGKILL)


def test_process_of_another_user_is_not_alive_when_proc_hides_it() -> None:
    # An old record may have the pid of a process of root's.
    script = """if True:
        import os, sys
        from serving.system import processes
        record = processes.ProcessIdentity("of an earlier boot", os.getppid(), 1)
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        try:
            open(f"/proc/{record.pid}/stat")
        except PermissionError:
            print(processes.is_alive(record), processes.of_session(processes.own_identity()))
    """
    mounted = "mount -t proc -o hidepid=1 proc /proc && exec unshare --fork"
    command = ["unshare", "--mount", "sh", "-c", f'{mounted} "$0" -c "$1"', sys.executable, script]
    if os.geteuid() != 0 or subprocess.run([*command[:2], "true"], check=False).returncode:
        pytest.skip("only root can mount /proc with hidepid=1")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"False set()\n"


def test_process_is_not_taken_for_ended_when_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", full)
    with pytest.raises(OSError, match="Too many open files"):
        processes.open_pidfd(processes.own_identity())


def test_no_descriptor_is_kept_when_the_process_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = os.pidfd_open

    def full(_: processes.ProcessIdentity) -> bool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", lambda pid: opened.append(real(pid)) or opened[-1])
    monkeypatch.setattr(processes, "is_alive", full)
    with pytest.raises(OSError, match="Too many open files"):
        processes.open_pidfd(processes.own_identity())
    [pidfd] = opened
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pidfd)


def test_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    identity = processes.identity_of(child.pid)
    assert identity is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(identity)
    child.wait()


FIRST_THREAD_ENDS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("started", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # this thread ends
"""


def test_process_is_alive_until_its_last_thread_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        identity = processes.identity_of(child.pid)
        assert identity is not None
        stat = Path(f"/proc/{child.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.001)
        assert processes.is_alive(identity)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not processes.is_alive(identity)


def test_processes_of_a_session_are_found_when_its_leader_has_ended() -> None:
    command = ["sh", "-c", "sleep 60 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as leader:
        assert leader.stdout is not None
        identity = processes.identity_of(leader.pid)
        member = processes.identity_of(int(leader.stdout.readline()))
        assert identity is not None
        assert member is not None
        assert processes.of_session(identity) == {identity, member}
        for stranger in (
            replace(identity, start_time=identity.start_time - 1),
            replace(identity, start_time=member.start_time + 1),
            replace(identity, boot_id=""),
        ):
            assert processes.of_session(stranger) == set()
        leader.kill()
        leader.wait()
        assert processes.of_session(identity) == {member}
        processes.send_signal(member, signal.SIGKILL)


def test_identity_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "api.json"
    own = processes.own_identity()
    processes.write_identity(path, own, port=6443)
    assert processes.read_identity(path) == (own, {"port": 6443})


def test_running_process_is_read_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "api.json"
    with subprocess.Popen(["sleep", "60"]) as child:
        identity = processes.identity_of(child.pid)
        assert identity is not None
        processes.write_identity(path, identity)
        assert processes.read_running(path) == (identity, {})
        child.kill()
    assert processes.read_running(path) is None


async def test_wait_for_the_end_of_a_process_is_limited() -> None:
    child = await asyncio.create_subprocess_exec("sleep", "60")
    identity = processes.identity_of(child.pid)
    assert identity is not None
    assert not await has_ended_within(identity, 0.01)
    child.kill()
    assert await has_ended_within(identity, 10)
    await child.wait()
    assert await has_ended_within(identity, 10)


def test_unusable_record_is_none(tmp_path: Path) -> None:
    path = tmp_path / "api.json"
    for content in ("", "{}", "[]", '{"boot_id": "b", "pid": 1, "start_time": null}'):
        path.write_text(content)
        assert processes.read_identity(path) is None


def test_start_is_in_unix_seconds() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        identity = processes.identity_of(child.pid)
        child.kill()
    assert identity is not None
    assert abs(identity.started_at() - clock.now().timestamp()) < 5


def test_process_is_gone_when_its_pid_is_a_thread_of_another() -> None:
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        begun.wait()
        assert thread.native_id is not None
        for boot_id in ("", processes.own_identity().boot_id):
            recorded = processes.ProcessIdentity(boot_id, thread.native_id, 1)
            assert processes.open_pidfd(recorded) is None
            assert not processes.send_signal(recorded, signal.SIGTERM)
    finally:
        done.set()
        thread.join()
