"""What a locustfile sees of the machine where the tuner runs as root: nothing of other processes."""

import json
import os
from typing import Any

import pytest

from tests.integration.load.conftest import LoadTarget
from tests.rig.load_users import user_ids
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
