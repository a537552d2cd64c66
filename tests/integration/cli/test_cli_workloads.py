"""The command line on Pods of a real node: logs, tables, watches, descriptions."""

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

import pytest

from serving.cli.objects.container_states import problems
from serving.data_dir import DataDir
from serving.embedded.kubelet.container import stopping
from serving.embedded.kubelet.records import PodDirectory
from serving.kube import connect
from serving.resources import kinds
from tests.rig.command_line import Ended, command_line
from tests.rig.servers.api_process import ApiProcess
from tests.rig.servers.node_process import NodeProcess, main_status, pod, until

NAMESPACE = "default"

LAST_WORDS = """
import signal, sys, time
def leave(*_):
    print('second', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print('first', flush=True)
time.sleep(600)
"""
SAYS_ITS_START = "import time; print(time.time_ns(), flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDir]:
    root = tmp_path_factory.mktemp("cli-node")
    api = ApiProcess(root / "data").start()
    node = NodeProcess(api.data_dir).start()
    yield api.data_dir
    asyncio.run(delete_pods(api.data_dir))
    node.stop()
    api.stop()
    print(api.log.read_text()[-4000:], node.log.read_text()[-4000:])


async def delete_pods(where: DataDir) -> None:
    async with await connect(where.kubeconfig, component="test") as kube:
        for stored in (await kube.list(kinds.POD, NAMESPACE)).items:
            await kube.delete(kinds.POD, NAMESPACE, stored["metadata"]["name"])
        deadline = time.monotonic() + 20
        while (await kube.list(kinds.POD, NAMESPACE)).items:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def until_event(where: DataDir, name: str) -> None:
    """Wait until there is an Event of the Pod, which the agent writes after the status."""
    async with await connect(where.kubeconfig, component="test") as kube:
        deadline = time.monotonic() + 20
        while not any(
            event["involvedObject"]["name"] == name
            for event in (await kube.list(kinds.EVENT_V1, NAMESPACE)).items
        ):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


def command(where: DataDir, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "serving.app", *arguments, "--kubeconfig", str(where.kubeconfig)]


@pytest.fixture
def slipway(where: DataDir, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run a command that ends by itself in this process."""
    run_command = command_line(where.kubeconfig, NAMESPACE, capsys)
    return lambda *arguments: asyncio.run(asyncio.wait_for(run_command(*arguments), 60))


@contextlib.contextmanager
def going_on(where: DataDir, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(where, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().rstrip("\n")


async def run(
    where: DataDir, body: dict[str, Any], holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    async with await connect(where.kubeconfig, component="test") as kube:
        await kube.create(kinds.POD, body)
        return await until(kube, NAMESPACE, body["metadata"]["name"], holds)


def test_followed_logs_print_new_lines_and_end_with_the_pod(
    where: DataDir, slipway: Callable[..., Ended]
) -> None:
    body = pod(NAMESPACE, "last-words", LAST_WORDS, spec_restartPolicy="Never")
    asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    with going_on(where, "logs", "-f", "pod/last-words") as logs:
        assert line(logs.stdout) == "first"
        assert slipway("delete", "pod", "last-words", "--no-wait")[0] == 0
        assert line(logs.stdout) == "second"
        assert (logs.wait(20), logs.stderr.read() if logs.stderr else "") == (0, "")


def test_followed_logs_exit_with_130_after_ctrl_c(where: DataDir) -> None:
    body = pod(NAMESPACE, "endless", "import time; print('on', flush=True); time.sleep(600)")
    asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    with going_on(where, "logs", "-f", "pod/endless") as logs:
        assert line(logs.stdout) == "on"
        logs.send_signal(signal.SIGINT)
        assert logs.wait(20) == 130
        assert logs.stderr is not None
        assert logs.stderr.read() == ""


def test_logs_have_timestamps_and_can_be_limited_by_age(
    where: DataDir, slipway: Callable[..., Ended]
) -> None:
    body = pod(NAMESPACE, "timed", "import time; print('on', flush=True); time.sleep(600)")
    asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    with going_on(where, "logs", "-f", "pod/timed") as logs:
        assert line(logs.stdout) == "on"
    out = slipway("logs", "pod/timed", "--timestamps", "--since", "1h")[1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+Z on\n", out)
    assert slipway("logs", "pod/timed", "--since", "soon")[0] == 1


def test_logs_end_silently_when_the_reader_closes_the_pipe(where: DataDir) -> None:
    script = "import time\nwhile True: print('x' * 1000, flush=True); time.sleep(0.01)"
    asyncio.run(
        run(where, pod(NAMESPACE, "talks", script), lambda stored: stored["status"].get("phase") == "Running")
    )
    with going_on(where, "logs", "-f", "pod/talks") as logs:
        assert line(logs.stdout) == "x" * 1000
        assert logs.stdout is not None
        assert logs.stderr is not None
        logs.stdout.close()
        assert logs.wait(20) == 1
        assert logs.stderr.read() == ""
    asyncio.run(delete_pods(where))


def test_logs_are_of_the_first_container_and_an_unknown_container_is_refused(
    where: DataDir, slipway: Callable[..., Ended]
) -> None:
    body = pod(NAMESPACE, "two", "import time; print('one', flush=True); time.sleep(600)")
    second = {**body["spec"]["containers"][0], "name": "other"}
    body["spec"]["containers"].append(second)
    asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    with going_on(where, "logs", "-f", "pod/two") as logs:
        assert line(logs.stdout) == "one"
        assert line(logs.stderr) == "container main of main, other; -c names another"
    code, out, err = slipway("logs", "-f", "pod/two", "-c", "third")
    assert (code, out) == (6, "")
    assert err == "error: container third is not valid for pod two\n"


def test_logs_previous_prints_the_run_before_the_last_restart(
    where: DataDir, slipway: Callable[..., Ended]
) -> None:
    body = pod(NAMESPACE, "again", SAYS_ITS_START)
    stored = asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    with going_on(where, "logs", "-f", "pod/again") as logs:
        first = line(logs.stdout)
    (current,) = PodDirectory(where.pods / stored["metadata"]["uid"]).latest()
    assert stopping.send_signal(current, signal.SIGKILL)

    async def restarted() -> None:
        async with await connect(where.kubeconfig, component="test") as kube:
            await until(
                kube, NAMESPACE, "again", lambda stored: main_status(stored).get("restartCount", 0) == 1
            )

    asyncio.run(restarted())
    assert slipway("logs", "pod/again", "--previous") == (0, f"{first}\n", "")


def test_logs_previous_is_refused_when_the_pod_never_restarted(
    where: DataDir, slipway: Callable[..., Ended]
) -> None:
    body = pod(NAMESPACE, "once", "import time; time.sleep(600)")
    asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    code, out, err = slipway("logs", "pod/once", "--previous")
    assert (code, out) == (6, "")
    assert "previous" in err


def test_describe_has_ages_restarts_and_the_agents_events(
    where: DataDir, slipway: Callable[..., Ended]
) -> None:
    body = pod(NAMESPACE, "told", "import time; time.sleep(600)")
    asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    asyncio.run(until_event(where, "told"))
    code, out, _ = slipway("describe", "pod", "told")
    assert code == 0
    (created,) = (row for row in out.splitlines() if row.startswith("CreationTimestamp:"))
    assert "s ago)" in created
    events = out[out.index("Events:") :].splitlines()
    assert events[1].split() == ["TYPE", "REASON", "AGE", "FROM", "MESSAGE"]
    assert events[2].split()[0] == "Normal"


def test_get_w_prints_existing_objects_and_then_changes_in_the_same_columns(
    where: DataDir, slipway: Callable[..., Ended]
) -> None:
    body = pod(NAMESPACE, "watched", "import time; time.sleep(600)")
    asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    with going_on(where, "get", "pod", "watched", "-w") as watch:
        header, row = line(watch.stdout), line(watch.stdout)
        assert header.split()[:2] == ["NAME", "READY"]
        assert row.startswith("watched")
        assert slipway("delete", "pod", "watched")[0] == 0
        changed = line(watch.stdout)
        assert "Terminating" in changed
        assert changed.index("Terminating") == header.index("STATUS")


def test_top_w_prints_the_usage_of_pods_and_then_each_change(where: DataDir) -> None:
    spins = "import time\nwhile True: sum(range(100_000)); time.sleep(0.01)"
    body = pod(NAMESPACE, "busy", spins)
    asyncio.run(run(where, body, lambda stored: stored["status"].get("phase") == "Running"))
    with going_on(where, "top", "pod", "busy", "-w") as usage:
        header, *rows = [line(usage.stdout) for _ in range(3)]
        usage.send_signal(signal.SIGINT)
        assert usage.wait(20) == 130
    assert header.split()[:4] == ["NAME", "INFERENCE", "ARM", "CPU"]
    assert [row.split()[0] for row in rows] == ["busy", "busy"]
    assert rows[0] != rows[1]
    asyncio.run(delete_pods(where))


def job(name: str, **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "none", "command": ["true"], **container}
    template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}}


@pytest.mark.parametrize(
    ("name", "container", "reason"),
    [
        ("no-program", {"command": ["/no/such/program"]}, "/no/such/program"),
        (
            "no-config",
            {"envFrom": [{"configMapRef": {"name": "nope"}}]},
            "container main waits: CreateContainerConfigError: configmap 'nope' not found",
        ),
    ],
)
def test_logs_and_describe_of_a_job_report_why_its_container_cannot_start(
    where: DataDir, slipway: Callable[..., Ended], name: str, container: dict[str, Any], reason: str
) -> None:
    async def created() -> None:
        async with await connect(where.kubeconfig, component="test") as kube:
            stored = await kube.create(kinds.JOB, job(name, **container))
            labels = f"controller-uid={stored['metadata']['uid']}"
            deadline = time.monotonic() + 20
            while not any(map(problems, (await kube.list(kinds.POD, NAMESPACE, labels=labels)).items)):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    asyncio.run(created())
    code, out, err = slipway("logs", f"job/{name}")
    assert (code, out) == (1, "")
    assert reason in err
    assert "has no log" in err
    code, out, _ = slipway("describe", "job", name)
    assert code == 0
    assert reason in out[out.index("Pods:") : out.index("Events:")]
    assert slipway("delete", "job", name)[0] == 0
