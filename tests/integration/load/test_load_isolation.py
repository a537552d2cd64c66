"""What a locustfile sees of the machine where the tuner runs as root: nothing of other processes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from serving.errors import Temporary
from serving.system.isolation import cgroup_files
from tests.integration.load.conftest import LoadTarget
from tests.rig.machine.load_users import user_ids
from tuner.load import cgroups
from tuner.load.generator import Generator
from tuner.load.plan import LoadPlan
from tuner.settings import LoadSettings

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

ATTACK = """
import ctypes, json, os
from locust import FastHttpUser, task

def outcome(attack):
    try: return str(attack())
    except OSError as error: return type(error).__name__

status = {line.split()[0]: line.split()[-1] for line in open("/proc/self/status")}
seen = {
    "user": os.getuid(),
    "groups": os.getgroups(),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "environ": outcome(lambda: open("/proc/VICTIM/environ").read()),
    "signal": outcome(lambda: os.kill(VICTIM, 0)),
    "shared": os.listdir("/dev/shm"),
    "ptrace": ctypes.CDLL(None).ptrace(0, 0, 0, 0),
    **{name: status[name + ":"] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
}

class Attacker(FastHttpUser):
    @task
    def attack(self):
        self.client.post("/wait/1", data=json.dumps(seen))
"""


BOMB = """
import errno, json, os, signal
from gevent import monkey
from locust import FastHttpUser, task

children, refused = [], ""
while not refused and len(children) < 500:
    try: pid = monkey.get_original("os", "fork")()
    except OSError as error: refused = errno.errorcode[error.errno]
    else:
        if pid == 0: signal.pause()
        children.append(pid)
for pid in children:
    os.kill(pid, signal.SIGKILL)
    monkey.get_original("os", "waitpid")(pid, 0)
seen = {"children": len(children), "refused": refused}

class Bomber(FastHttpUser):
    @task
    def report(self):
        self.client.post("/wait/1", data=json.dumps(seen))
"""
HOARD = """
from locust import FastHttpUser, task

hoarded = b"x" * (1 << 30)

class Hoarder(FastHttpUser):
    @task
    def wait(self):
        self.client.get("/wait/1")
"""


async def attack(target: LoadTarget) -> dict[str, Any]:
    own = LoadPlan("closed", (), locustfile=ATTACK.replace("VICTIM", str(os.getpid())))
    async with Generator.start(target.url, own, LoadSettings(), user_ids=USER_IDS) as generator:
        await generator.window(1, 0.1)
    return json.loads(target.log()[0]["body"])


USER_IDS = user_ids()


async def test_locustfile_reaches_no_other_process_and_has_no_rights(target: LoadTarget) -> None:
    seen = await attack(target)
    assert seen["processes"] == [1]
    assert (seen["environ"], seen["signal"]) == ("FileNotFoundError", "ProcessLookupError")
    assert seen["shared"] == []
    assert seen["groups"] == []
    assert int(seen["CapEff"], 16) == 0
    assert (seen["NoNewPrivs"], seen["Seccomp"], seen["ptrace"]) == ("1", "2", -1)


async def test_load_generators_have_users_of_their_own(target: LoadTarget) -> None:
    first, second = [(await attack(target))["user"] for _ in range(2)]
    assert first != second
    assert {0, 65_534}.isdisjoint({first, second})


def groups() -> set[Path]:
    walk = os.walk("/sys/fs/cgroup")  # unlike `glob`, it bears that other tests remove theirs
    parents = (Path(folder, cgroups.TOP) for folder, names, _ in walk if cgroups.TOP in names)
    return {group for parent in parents for group in parent.glob(f"{os.getpid()}-*/")}


def needs(controller: str) -> None:
    if cgroup_files.machine_layout().root_of(controller) is None:
        pytest.skip(f"no cgroup controller for {controller}")


async def test_locustfile_gets_no_more_processes_than_its_limit(target: LoadTarget) -> None:
    needs("pids")
    before, limited = groups(), LoadSettings(pids_limit=30)
    own = LoadPlan("closed", (), locustfile=BOMB)
    async with Generator.start(target.url, own, limited, user_ids=USER_IDS) as generator:
        assert groups() > before
        await generator.window(1, 0.1)
    seen = json.loads(target.log()[0]["body"])
    assert seen["refused"] == "EAGAIN"
    assert 0 < seen["children"] < 30
    assert groups() == before


async def test_locustfile_ends_when_it_takes_more_memory_than_its_limit(target: LoadTarget) -> None:
    needs("memory")
    before, limited = groups(), LoadSettings(memory_bytes=400 * 1024 * 1024)
    own = LoadPlan("closed", (), locustfile=HOARD)
    with pytest.raises(Temporary, match="locust ended with signal 9"):
        async with Generator.start(target.url, own, limited, user_ids=USER_IDS):
            pass
    assert groups() == before


def test_cgroup_of_a_tuner_that_is_gone_is_removed_by_the_next_run() -> None:
    needs("pids")
    made = [Path(group) for group in cgroups.make(1, LoadSettings())]
    left = [group.with_name(f"{2**22 + 1}-1") for group in made]
    for group in left:
        group.mkdir()
    again = cgroups.make(2, LoadSettings())
    assert made
    assert all(group.exists() for group in made)
    assert not any(group.exists() for group in left)
    cgroups.remove([*map(str, made), *again])
    assert not any(Path(group).exists() for group in (*made, *again))
