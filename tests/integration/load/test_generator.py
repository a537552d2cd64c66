"""The load generator against a real target: what it says happened is what the target saw."""

import asyncio
import dataclasses
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from serving.errors import Permanent
from tests.integration.load.conftest import Target
from tuner.load.generator import Generator
from tuner.load.plan import LoadPlan, LoadRequest, Mode
from tuner.settings import LoadSettings

WINDOWS = 20
SETTINGS = LoadSettings(request_timeout=5.0, drain_timeout=2.0)


def plan(path: str, mode: Mode = "closed", **changed: object) -> LoadPlan:
    return dataclasses.replace(LoadPlan(mode, (LoadRequest("POST", path, {}, b"{}"),), seed=1), **changed)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_closed_loop_keeps_its_users_busy_and_changes_levels_without_a_restart(
    target: Target,
) -> None:
    before = descriptors()
    async with Generator.start(target.url, plan("/wait/20"), SETTINGS) as generator:
        for users in (1, 6, 3):
            await generator.window(users, 0.2)
            target.log()
            seen = await generator.window(users, 0.6)
            rows = target.log()
            assert max(row["inside"] for row in rows) == users
            assert seen.ok.all()
            assert len(seen.ok) == pytest.approx(len(rows), abs=2 * users)
            assert len(seen.unfinished) == users
    assert descriptors() == before


async def test_what_new_users_wait_for_their_first_answer_is_in_no_window(target: Target) -> None:
    """Hundreds that connect at once wait long, once: that says nothing of what so many users wait for."""
    async with Generator.start(target.url, plan("/first/700"), SETTINGS) as generator:
        for users in (2, 12):
            seen = await generator.window(users, 0.3)
            assert len(seen.ok) > users
            assert seen.latency.max() < 0.5
            assert seen.unfinished.max() < 0.5


async def test_a_first_answer_that_does_not_come_is_waited_for_no_longer_than_others(target: Target) -> None:
    async with Generator.start(target.url, plan("/first/4000"), SETTINGS) as generator:
        started = time.monotonic()
        seen = await generator.window(3, 0.2)
        assert time.monotonic() - started < SETTINGS.drain_timeout + 1.0
        assert len(seen.unfinished) == 3


async def test_latencies_are_what_the_target_took_within_two_milliseconds(target: Target) -> None:
    """In the best of some windows: on a busy machine either process waits for its turn, and the clock goes on."""
    apart = []
    async with Generator.start(target.url, plan("/wait/10"), SETTINGS) as generator:
        while not apart or (apart[-1] > 0.002 and len(apart) < WINDOWS):
            target.log()
            seen = await generator.window(2, 0.4)
            took = [row["took"] for row in target.log()]
            apart.append(float(np.median(seen.latency) - np.median(took)))
    assert min(apart) < 0.002
    assert max(apart) > 0


async def test_an_open_loop_counts_from_the_intended_time_while_the_target_stalls(target: Target) -> None:
    """Coordinated omission: a user who waits would send nothing in the stall, and so see one slow answer."""
    async with Generator.start(target.url, plan("/wait/1", "open"), SETTINGS) as generator:
        window = asyncio.create_task(generator.window(100, 2.0))
        await asyncio.sleep(0.7)
        await asyncio.to_thread(target.get, "/block/800")
        seen = await window
        slow = seen.latency > 0.1
        assert 40 <= slow.sum() <= 120  # those of 0.7 s at 100 per second
        assert 0.35 < np.mean(seen.latency[slow]) < 0.6  # evenly spread over the stall
        assert len(seen.ok) == pytest.approx(200, abs=45)
        assert seen.late < 0.5  # the sends themselves were on time: the stall is the target's


async def test_a_generator_that_is_late_says_so_and_counts_from_the_intended_time(target: Target) -> None:
    async with Generator.start(target.url, plan("/wait/1", "open"), SETTINGS) as generator:
        locust = generator._locusts[0]._process.pid
        window = asyncio.create_task(generator.window(100, 1.5))
        await asyncio.sleep(0.5)
        os.kill(locust, signal.SIGSTOP)
        await asyncio.sleep(0.5)
        os.kill(locust, signal.SIGCONT)
        seen = await window
    slow = seen.latency > 0.1
    assert 20 <= slow.sum() <= 80  # those of 0.4 s at 100 per second
    assert seen.latency.max() > 0.4
    assert seen.late >= slow.sum() / len(slow)
    took = [row["took"] for row in target.log()]
    assert np.percentile(took, 90) < 0.1  # the target was not slow


async def test_an_open_loop_is_a_poisson_process_by_its_seed_and_slows_down_when_told(target: Target) -> None:
    async with Generator.start(target.url, plan("/wait/1", "open"), SETTINGS) as generator:
        seen = await generator.window(300, 1.0)
        assert len(seen.ok) == pytest.approx(300, abs=70)
        gaps = np.diff(np.sort(seen.intended))
        assert 0.8 < gaps.std() / gaps.mean() < 1.2
        assert len((await generator.window(30, 1.0)).ok) == pytest.approx(30, abs=20)


async def test_recorded_requests_keep_their_bursts_at_the_rate_that_is_asked(target: Target) -> None:
    """Three at once, then a pause, ten times slower than it is replayed."""
    moments = [0.0, 0.0, 0.0, 3.0, 3.0, 3.0, 6.0, 6.0, 6.0]
    requests = tuple(
        LoadRequest("POST", "/wait/1", {}, str(n).encode(), at=moment) for n, moment in enumerate(moments)
    )
    async with Generator.start(target.url, LoadPlan("open", requests), SETTINGS) as generator:
        seen = await generator.window(40, 1.0)
        bodies = [row["body"] for row in sorted(target.log(), key=lambda row: row["came"])]
    assert len(seen.ok) == pytest.approx(40, abs=8)
    assert {int(body) for body in bodies[:9]} == set(range(9))
    gaps = np.diff(np.sort(seen.intended))
    assert (gaps < 0.001).sum() > len(gaps) / 2  # two of three gaps are inside a burst


async def test_streamed_completions_have_tokens_and_the_times_between_them(target: Target) -> None:
    request = LoadRequest("POST", "/stream/20/completions", {}, b'{"stream": true}', stream=True)
    async with Generator.start(target.url, LoadPlan("closed", (request,)), SETTINGS) as generator:
        seen = await generator.window(2, 1.0)
    assert seen.ok.all()
    assert set(seen.tokens) == {5}
    assert len(seen.itl) == 4 * len(seen.ok)
    assert len(seen.ttft) == len(seen.ok)
    assert 0.019 < seen.ttft.min() < 0.026
    assert 0.019 < np.percentile(seen.itl, 10) < 0.026
    assert seen.latency.sum() == pytest.approx(seen.ttft.sum() + seen.itl.sum(), rel=0.1)


HOSTILE = {
    "/never": "no answer within 0.5 s",
    "/drip": "no answer within 0.5 s",
    "/garbage": "HTTPParseError",
    "/close": "HTTPConnectionClosed",
    "/status/503": "status 503",
}


async def test_a_hostile_target_is_bounded_in_time_and_every_request_of_it_has_failed(target: Target) -> None:
    settings = dataclasses.replace(SETTINGS, request_timeout=0.5)
    requests = tuple(LoadRequest("POST", path, {}, b"{}") for path in HOSTILE)
    async with Generator.start(target.url, LoadPlan("closed", requests), settings) as generator:
        started = time.monotonic()
        seen = await generator.window(5, 2.0)
        await generator.window(1, 0.1)
        assert time.monotonic() - started < 2.0 + 0.1 + 0.5 + settings.drain_timeout
    assert len(seen.ok) >= 10
    assert not seen.ok.any()
    assert {text.partition(":")[0] for text, _ in seen.errors} == set(HOSTILE.values())
    assert "status 503: {}" in {text for text, _ in seen.errors}, "the answer's beginning says why"
    assert seen.latency.max() < 1.0


async def test_a_target_that_nobody_listens_at_fails_every_request() -> None:
    async with Generator.start("http://127.0.0.1:9", plan("/"), SETTINGS) as generator:
        seen = await generator.window(1, 0.2)
    assert len(seen.ok) > 0
    assert not seen.ok.any()
    assert "ConnectionRefusedError" in seen.errors[0][0]


async def test_requests_beyond_the_most_that_may_be_unanswered_are_counted_as_failed(target: Target) -> None:
    settings = dataclasses.replace(SETTINGS, most_unanswered=20)
    async with Generator.start(target.url, plan("/never", "open"), settings) as generator:
        seen = await generator.window(200, 1.0)
    # Another may be due as the window ends, before anybody has looked whether it may be sent.
    assert np.count_nonzero(seen.unfinished > 0.1) == 20
    assert len(seen.ok) == pytest.approx(180, abs=50)
    assert seen.errors[0][0] == "not sent: 20 requests had no answer"


async def test_two_processes_share_the_users_and_their_samples_meet(target: Target) -> None:
    cores = sorted(os.sched_getaffinity(0))
    async with Generator.start(target.url, plan("/wait/20"), SETTINGS, [cores[0], cores[-1]]) as generator:
        await generator.window(5, 0.2)
        target.log()
        seen = await generator.window(5, 0.6)
        assert max(row["inside"] for row in target.log()) == 5
        assert len(seen.unfinished) == 5
        assert 0 < seen.generator_cpu < 1
        await generator.window(1, 0.2)
        target.log()
        assert (await generator.window(1, 0.3)).ok.all()
        assert max(row["inside"] for row in target.log()) == 1


OWN = """
import os
import statistics  # which nothing before has imported, and which may lie in root's home
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


async def test_a_locustfile_runs_its_own_users_who_are_recorded_and_have_no_rights(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/secret")
    mine = LoadPlan("closed", (), locustfile=OWN)
    async with Generator.start(target.url, mine, SETTINGS) as generator:
        seen = await generator.window(2, 0.8)
    rows = target.log()
    user = SETTINGS.user if os.geteuid() == 0 else os.getuid()
    assert {row["body"] for row in rows if row["path"] == "/wait/5"} == {f"{user} None"}
    assert seen.ok.sum() == pytest.approx(sum(row["path"] == "/wait/5" for row in rows), abs=4)
    assert 0.005 < seen.latency[seen.ok].min() < 0.01
    assert "500" in seen.errors[0][0]


STARTS_ANOTHER = """
import subprocess
from locust import FastHttpUser, task

other = subprocess.Popen(["sleep", "600"])

class Telling(FastHttpUser):
    @task
    def tell(self):
        self.client.post("/wait/5", data=str(other.pid))
"""


async def test_what_a_locustfile_started_ends_with_it(target: Target) -> None:
    """It would go on on the cores that the next trial is measured with."""
    async with Generator.start(
        target.url, LoadPlan("closed", (), locustfile=STARTS_ANOTHER), SETTINGS
    ) as generator:
        await generator.window(1, 0.2)
        (pid,) = {int(row["body"]) for row in target.log()}
        assert _runs(pid)
    async with asyncio.timeout(5):
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import locust\nnonsense()", "line 2: NameError"),
        ("x = 1", "has no user"),
    ],
)
async def test_a_locustfile_that_cannot_be_run_says_where(source: str, message: str) -> None:
    with pytest.raises(Permanent, match=message) as raised:
        async with Generator.start("http://127.0.0.1:9", LoadPlan("closed", (), locustfile=source), SETTINGS):
            pass
    assert raised.value.reason == "LoadFailed"
