"""The load generator against a real target: its samples agree with the target's log."""

import asyncio
import dataclasses
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from serving.errors import Permanent
from serving.system import procfs
from serving.system.isolation.user_ids import UserIds
from tests.integration.load.conftest import LoadTarget
from tests.rig.machine.load_users import user_ids
from tuner.load.generator import Generator
from tuner.load.plan import LoadPlan, LoadRequest, Mode
from tuner.settings import LoadSettings

WINDOWS = 20
SETTINGS = LoadSettings(request_timeout=5.0, drain_timeout=2.0)


def plan(path: str, mode: Mode = "closed", **changed: object) -> LoadPlan:
    return dataclasses.replace(LoadPlan(mode, (LoadRequest("POST", path, {}, b"{}"),), seed=1), **changed)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_closed_loop_keeps_users_busy_and_changes_levels_without_a_restart(
    target: LoadTarget,
) -> None:
    """A window may end between two requests of a user: some window of a level ends with all users busy."""
    before = descriptors()
    async with Generator.start(target.url, plan("/wait/20"), SETTINGS, user_ids=user_ids()) as generator:
        for users in (1, 6, 3):
            await generator.window(users, 0.2)
            unfinished: list[int] = []
            while users not in unfinished and len(unfinished) < WINDOWS:
                target.log()
                samples = await generator.window(users, 0.6)
                rows = target.log()
                assert max(row["inside"] for row in rows) == users
                assert samples.ok.all()
                assert len(samples.ok) == pytest.approx(len(rows), abs=2 * users)
                unfinished.append(len(samples.unfinished))
            assert max(unfinished) == users
    assert descriptors() == before


@pytest.mark.parametrize("users", [1, 3, 6])
async def test_every_user_has_an_unfinished_request_when_none_is_answered_in_a_window(
    target: LoadTarget, users: int
) -> None:
    async with Generator.start(target.url, plan("/wait/900"), SETTINGS, user_ids=user_ids()) as generator:
        samples = await generator.window(users, 0.3)
        assert len(samples.ok) == 0
        assert len(samples.unfinished) == users


async def test_windows_exclude_the_first_response_of_new_users(target: LoadTarget) -> None:
    """Hundreds of users that connect at once wait long for the first response only."""
    async with Generator.start(target.url, plan("/first/700"), SETTINGS, user_ids=user_ids()) as generator:
        for users in (2, 12):
            samples = await generator.window(users, 0.3)
            assert len(samples.ok) > users
            assert samples.latency.max() < 0.5
            assert samples.unfinished.max() < 0.5


async def test_wait_for_first_responses_is_bounded(target: LoadTarget) -> None:
    async with Generator.start(target.url, plan("/first/4000"), SETTINGS, user_ids=user_ids()) as generator:
        started = time.monotonic()
        samples = await generator.window(3, 0.2)
        assert time.monotonic() - started < SETTINGS.drain_timeout + 1.0
        assert len(samples.unfinished) == 3


@pytest.mark.parametrize(
    ("mode", "higher", "lower", "most", "oldest"), [("open", 30, 5, 5, 0.8), ("closed", 6, 1, 1, 1.8)]
)
async def test_lower_load_begins_without_the_requests_of_the_higher_one(
    target: LoadTarget, mode: Mode, higher: float, lower: float, most: int, oldest: float
) -> None:
    settings = dataclasses.replace(SETTINGS, drain_timeout=0.1)
    async with Generator.start(
        target.url, plan("/wait/1200", mode), settings, user_ids=user_ids()
    ) as generator:
        before = await generator.window(higher, 0.5)
        assert len(before.unfinished) > 5
        after = await generator.window(lower, 0.2)
    assert len(after.unfinished) <= most
    assert after.unfinished.max(initial=0.0) < oldest


async def test_latencies_agree_with_the_target_within_two_milliseconds(target: LoadTarget) -> None:
    """In the best of several windows, as a busy machine delays either process."""
    apart = []
    async with Generator.start(target.url, plan("/wait/10"), SETTINGS, user_ids=user_ids()) as generator:
        while not apart or (apart[-1] > 0.002 and len(apart) < WINDOWS):
            target.log()
            samples = await generator.window(2, 0.4)
            took = [row["took"] for row in target.log()]
            apart.append(float(np.median(samples.latency) - np.median(took)))
    assert min(apart) < 0.002
    assert max(apart) > 0


async def test_open_loop_latency_counts_from_the_intended_time_when_the_target_stalls(
    target: LoadTarget,
) -> None:
    """Coordinated omission: a closed loop would send nothing in the stall and have one slow response."""
    async with Generator.start(
        target.url, plan("/wait/1", "open"), SETTINGS, user_ids=user_ids()
    ) as generator:
        window = asyncio.create_task(generator.window(100, 2.0))
        await asyncio.sleep(0.7)
        await asyncio.to_thread(target.get, "/block/800")
        samples = await window
        slow = samples.latency > 0.1
        assert 40 <= slow.sum() <= 120  # the requests of 0.7 s at 100 per second
        assert 0.35 < np.mean(samples.latency[slow]) < 0.6  # spread evenly over the stall
        assert len(samples.ok) == pytest.approx(200, abs=45)
        assert samples.late < 0.5  # sent on time: the target stalled


async def test_late_generator_reports_it_and_counts_from_the_intended_time(target: LoadTarget) -> None:
    async with Generator.start(
        target.url, plan("/wait/1", "open"), SETTINGS, user_ids=user_ids()
    ) as generator:
        locust = generator._locusts[0]._process.pid
        window = asyncio.create_task(generator.window(100, 1.5))
        await asyncio.sleep(0.5)
        os.kill(locust, signal.SIGSTOP)
        await asyncio.sleep(0.5)
        os.kill(locust, signal.SIGCONT)
        samples = await window
    slow = samples.latency > 0.1
    assert 20 <= slow.sum() <= 80  # the requests of 0.4 s at 100 per second
    assert samples.latency.max() > 0.4
    assert samples.late >= slow.sum() / len(slow)
    took = [row["took"] for row in target.log()]
    assert np.percentile(took, 90) < 0.1  # the target was not slow


async def test_open_loop_is_a_poisson_process_and_slows_down(target: LoadTarget) -> None:
    async with Generator.start(
        target.url, plan("/wait/1", "open"), SETTINGS, user_ids=user_ids()
    ) as generator:
        samples = await generator.window(300, 1.0)
        assert len(samples.ok) == pytest.approx(300, abs=70)
        gaps = np.diff(np.sort(samples.intended))
        assert 0.8 < gaps.std() / gaps.mean() < 1.2
        assert len((await generator.window(30, 1.0)).ok) == pytest.approx(30, abs=20)


async def test_recorded_requests_keep_their_bursts_at_the_given_rate(target: LoadTarget) -> None:
    """Three requests at once, then a pause; the recording is ten times slower than the replay."""
    moments = [0.0, 0.0, 0.0, 3.0, 3.0, 3.0, 6.0, 6.0, 6.0]
    requests = tuple(
        LoadRequest("POST", "/wait/1", {}, str(n).encode(), at=moment) for n, moment in enumerate(moments)
    )
    async with Generator.start(
        target.url, LoadPlan("open", requests), SETTINGS, user_ids=user_ids()
    ) as generator:
        samples = await generator.window(40, 1.0)
        bodies = [row["body"] for row in sorted(target.log(), key=lambda row: row["came"])]
    assert len(samples.ok) == pytest.approx(40, abs=8)
    assert {int(body) for body in bodies[:9]} == set(range(9))
    gaps = np.diff(np.sort(samples.intended))
    assert (gaps < 0.001).sum() > len(gaps) / 2  # two of three gaps are within a burst


async def test_streamed_completions_have_tokens_and_the_times_between_them(target: LoadTarget) -> None:
    request = LoadRequest("POST", "/stream/20/completions", {}, b'{"stream": true}', stream=True)
    async with Generator.start(
        target.url, LoadPlan("closed", (request,)), SETTINGS, user_ids=user_ids()
    ) as generator:
        samples = await generator.window(2, 1.0)
    assert samples.ok.all()
    assert (set(samples.tokens), set(samples.prompt_tokens)) == ({5}, {7})
    assert len(samples.itl) == 4 * len(samples.ok)
    assert len(samples.ttft) == len(samples.ok)
    assert 0.019 < samples.ttft.min() < 0.026
    assert 0.019 < np.percentile(samples.itl, 10) < 0.026
    assert samples.latency.sum() == pytest.approx(samples.ttft.sum() + samples.itl.sum(), rel=0.1)


async def test_streams_are_silent_until_their_first_token(target: LoadTarget) -> None:
    settings = dataclasses.replace(SETTINGS, drain_timeout=0.05)
    request = LoadRequest("POST", "/stream/1500/completions", {}, b'{"stream": true}', stream=True)
    async with Generator.start(
        target.url, LoadPlan("closed", (request,)), settings, user_ids=user_ids()
    ) as generator:
        before = await generator.window(3, 0.3)
        assert (len(before.unfinished), len(before.silent)) == (3, 3)
        assert before.silent == pytest.approx(before.unfinished)
        after = await generator.window(3, 2.0)
        assert (len(after.unfinished), len(after.silent)) == (3, 0)


async def test_requests_of_one_burst_are_all_unfinished_when_none_is_answered(target: LoadTarget) -> None:
    """They have the same intended time."""
    requests = tuple(
        LoadRequest("POST", "/wait/900", {}, b"{}", at=moment) for moment in (0.0, 0.0, 0.0, 9.0)
    )
    async with Generator.start(
        target.url, LoadPlan("open", requests), SETTINGS, user_ids=user_ids()
    ) as generator:
        samples = await generator.window(4, 0.3)
        assert len(samples.unfinished) == 3


HOSTILE = {
    "/never": "no answer within 0.5 s",
    "/drip": "no answer within 0.5 s",
    "/garbage": "HTTPParseError",
    "/close": "HTTPConnectionClosed",
    "/status/503": "status 503",
}


async def test_requests_to_a_hostile_target_fail_in_bounded_time(target: LoadTarget) -> None:
    settings = dataclasses.replace(SETTINGS, request_timeout=0.5)
    requests = tuple(LoadRequest("POST", path, {}, b"{}") for path in HOSTILE)
    async with Generator.start(
        target.url, LoadPlan("closed", requests), settings, user_ids=user_ids()
    ) as generator:
        started = time.monotonic()
        samples = await generator.window(5, 2.0)
        await generator.window(1, 0.1)
        assert time.monotonic() - started < 2.0 + 0.1 + 0.5 + settings.drain_timeout
    assert len(samples.ok) >= 10
    assert not samples.ok.any()
    assert {text.partition(":")[0] for text, _ in samples.errors} == set(HOSTILE.values())
    assert "status 503: {}" in {text for text, _ in samples.errors}, "errors have the beginning of the body"
    assert samples.latency.max() < 1.0


async def test_every_request_fails_when_nothing_listens() -> None:
    async with Generator.start("http://127.0.0.1:9", plan("/"), SETTINGS, user_ids=user_ids()) as generator:
        samples = await generator.window(1, 0.2)
    assert len(samples.ok) > 0
    assert not samples.ok.any()
    assert "ConnectionRefusedError" in samples.errors[0][0]


async def test_requests_beyond_most_unanswered_count_as_failed(target: LoadTarget) -> None:
    settings = dataclasses.replace(SETTINGS, most_unanswered=20)
    async with Generator.start(
        target.url, plan("/never", "open"), settings, user_ids=user_ids()
    ) as generator:
        samples = await generator.window(200, 1.0)
    # Another request may be due at the end of the window and not yet checked.
    assert np.count_nonzero(samples.unfinished > 0.1) == 20
    assert len(samples.ok) == pytest.approx(180, abs=50)
    assert samples.errors[0][0] == "not sent: 20 requests had no answer"


async def test_two_processes_share_users_and_their_samples_are_merged(target: LoadTarget) -> None:
    cores = sorted(os.sched_getaffinity(0))
    async with Generator.start(
        target.url, plan("/wait/20"), SETTINGS, [cores[0], cores[-1]], user_ids=user_ids()
    ) as generator:
        await generator.window(5, 0.2)
        target.log()
        samples = await generator.window(5, 0.6)
        assert max(row["inside"] for row in target.log()) == 5
        assert len(samples.unfinished) == 5
        assert 0 < samples.generator_cpu < 1
        await generator.window(1, 0.2)
        target.log()
        assert (await generator.window(1, 0.3)).ok.all()
        assert max(row["inside"] for row in target.log()) == 1


LOCUSTFILE = """
import os
import statistics  # not imported before; it may be in root's home
from locust import FastHttpUser, HttpUser, constant, task

class Quick(FastHttpUser):
    wait_time = constant(0.01)

    @task
    def ask(self):
        self.client.post("/wait/5", data=f"{os.getuid()} {os.environ.get('KUBECONFIG')}")

class Classic(HttpUser):
    @task
    def fail(self):
        self.client.get("/status/500")
"""


async def test_users_of_a_locustfile_are_recorded_and_unprivileged(
    target: LoadTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/secret")
    own = LoadPlan("closed", (), locustfile=LOCUSTFILE)
    async with Generator.start(target.url, own, SETTINGS, user_ids=user_ids()) as generator:
        samples = await generator.window(2, 0.8)
    rows = target.log()
    (user,) = {int(row["body"].split()[0]) for row in rows if row["path"] == "/wait/5"}
    assert user in UserIds(tmp_path) if os.geteuid() == 0 else user == os.getuid()
    assert {row["body"] for row in rows if row["path"] == "/wait/5"} == {f"{user} None"}
    assert samples.ok.sum() == pytest.approx(sum(row["path"] == "/wait/5" for row in rows), abs=4)
    assert 0.005 < samples.latency[samples.ok].min() < 0.01
    assert "500" in samples.errors[0][0]


STARTS_PROCESS = """
import subprocess
from locust import FastHttpUser, task

subprocess.Popen(["sleep", "{seconds}"], start_new_session={own_session})

class QuietUser(FastHttpUser):
    @task
    def ask(self):
        self.client.post("/wait/5")
"""


async def test_processes_of_a_locustfile_end_with_it(target: LoadTarget) -> None:
    """They would use the cores of the next trial; as root also those that have left its session."""
    seconds = f"600.{os.getpid()}"
    source = STARTS_PROCESS.format(seconds=seconds, own_session=os.geteuid() == 0)
    own = LoadPlan("closed", (), locustfile=source)
    async with Generator.start(target.url, own, SETTINGS, user_ids=user_ids()) as generator:
        await generator.window(1, 0.2)
        assert _sleeps(seconds)
    async with asyncio.timeout(5):
        while _sleeps(seconds):
            await asyncio.sleep(0.01)


def _sleeps(seconds: str) -> bool:
    command = b"sleep\0%b\0" % seconds.encode()
    return any(_command_line(pid) == command for pid in procfs.processes())


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import locust\nnonsense()", "line 2: NameError"),
        ("x = 1", "has no user"),
    ],
)
async def test_invalid_locustfile_is_refused_with_its_line(source: str, message: str) -> None:
    with pytest.raises(Permanent, match=message) as raised:
        async with Generator.start(
            "http://127.0.0.1:9", LoadPlan("closed", (), locustfile=source), SETTINGS, user_ids=user_ids()
        ):
            pass
    assert raised.value.reason == "LoadFailed"
