"""Why a container ended, in the status of its Pod; its files and its log may be of another type."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.data_dir import DataDir
from serving.kube import Kube
from serving.resources import kinds
from tests.rig.servers.node_process import NodeProcess, main_status, phase, pod, until

NAMESPACE = "default"
FALLBACK = "FallbackToLogsOnError"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


async def end(kube: Kube, name: str, script: str, **container: Any) -> dict[str, Any]:
    """Run a Pod to its failure; return the state of its container."""
    await kube.create(kinds.POD, pod(NAMESPACE, name, script, spec_restartPolicy="Never", **container))
    return main_status(await until(kube, NAMESPACE, name, phase("Failed")))["state"]["terminated"]


async def test_end_of_the_log_is_the_message_when_the_policy_is_a_fallback(kube: Kube) -> None:
    script = "print('began'); print('LoadFailed: \\x1b[31mno\\x00'); raise SystemExit(1)"
    state = await end(kube, "fallback", script, terminationMessagePolicy=FALLBACK)
    assert state["message"] == "began\nLoadFailed: \\x1b[31mno\\x00\n"


async def test_container_has_no_message_when_its_policy_is_a_file_that_it_did_not_write(kube: Kube) -> None:
    assert "message" not in await end(kube, "silent", "print('secret'); raise SystemExit(1)")


@needs_root
@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("open(p, 'w').write('of the file')", "of the file"),
        ("os.mkfifo(p)", "log\n"),
        ("os.mkdir(p)", "log\n"),
        ("os.symlink('/etc/passwd', p)", "log\n"),
    ],
    ids=["file", "fifo", "directory", "link"],
)
async def test_message_file_is_read_when_it_is_a_regular_one(
    kube: Kube, request: pytest.FixtureRequest, make: str, message: str
) -> None:
    name = f"file-{request.node.callspec.id.rsplit('-', 1)[-1]}"
    script = f"import os; p = '/tmp/why'; {make}; print('log'); raise SystemExit(1)"
    fields = {"terminationMessagePath": "/tmp/why", "terminationMessagePolicy": FALLBACK}
    assert (await end(kube, name, script, **fields))["message"] == message


@needs_root
async def test_message_of_a_file_survives_the_next_run_and_a_new_agent(kube: Kube, node: NodeProcess) -> None:
    script = (
        "import os, time; n = len(os.listdir('/keep')); open(f'/keep/{n}', 'w').close()\n"
        "if n: time.sleep(600)\n"
        "open('/tmp/why', 'w').write('the first run'); raise SystemExit(1)"
    )
    volumes = {
        "volumeMounts": [{"name": "keep", "mountPath": "/keep"}],
        "spec_volumes": [{"name": "keep", "emptyDir": {}}],
    }
    created = pod(NAMESPACE, "restarts", script, terminationMessagePath="/tmp/why", **volumes)
    await kube.create(kinds.POD, created)

    def runs_again(stored: dict[str, Any]) -> bool:
        status = main_status(stored)
        return status.get("restartCount") == 1 and "startedAt" in status["state"].get("running", {})

    stored = await until(kube, NAMESPACE, "restarts", runs_again)
    assert main_status(stored)["lastState"]["terminated"]["message"] == "the first run"
    node.stop()
    patch = {"status": {"containerStatuses": None}}
    await kube.patch(kinds.POD, NAMESPACE, "restarts", patch, subresource="status")
    node.start()
    stored = await until(kube, NAMESPACE, "restarts", runs_again)
    assert main_status(stored)["lastState"]["terminated"]["message"] == "the first run"


FAILS_ON_GO = """
import os, time
print("up", flush=True)
while not os.path.exists("/go/go"): time.sleep(0.02)
exit(1)
"""
GO: dict[str, Any] = {
    "volumeMounts": [{"name": "go", "mountPath": "/go"}],
    "spec_volumes": [{"name": "go", "emptyDir": {}}],
}
OTHERS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "link": lambda path: path.symlink_to("/etc/passwd"),
}


@pytest.mark.parametrize("kind", OTHERS)
async def test_pod_ends_and_its_log_is_refused_when_a_file_of_another_type_takes_its_place(
    kube: Kube, node: NodeProcess, kind: str
) -> None:
    name = f"log-{kind}"
    policy = {"spec_restartPolicy": "Never", "terminationMessagePolicy": FALLBACK}
    created = pod(NAMESPACE, name, FAILS_ON_GO, **policy, **GO)
    uid = (await kube.create(kinds.POD, created))["metadata"]["uid"]
    log = await written_log(node.data_dir, uid)
    log.unlink()
    OTHERS[kind](log)
    (node.data_dir.pod_volume(uid, "go") / "go").touch()
    stored = await until(kube, NAMESPACE, name, phase("Failed"))
    state = main_status(stored)["state"]["terminated"]
    assert (state["exitCode"], state.get("message")) == (1, None)


async def written_log(data_dir: DataDir, uid: str) -> Path:
    """Wait until the first run has written to its log."""
    path, deadline = data_dir.pod_log(uid, "main", 0), time.monotonic() + 15
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    return path


@pytest.mark.parametrize("kind", OTHERS)
async def test_container_waits_with_the_reason_when_its_log_cannot_be_made(
    kube: Kube, node: NodeProcess, kind: str
) -> None:
    name = f"no-log-{kind}"
    uid = (await kube.create(kinds.POD, pod(NAMESPACE, name, FAILS_ON_GO, **GO)))["metadata"]["uid"]
    await until(kube, NAMESPACE, name, lambda p: "running" in main_status(p).get("state", {}))
    log = node.data_dir.pod_log(uid, "main", 1)
    OTHERS[kind](log)
    (node.data_dir.pod_volume(uid, "go") / "go").touch()
    blocked = await until(
        kube,
        NAMESPACE,
        name,
        lambda p: main_status(p)["state"].get("waiting", {}).get("reason") == "CreateContainerError",
    )
    assert "is not a regular file" in main_status(blocked)["state"]["waiting"]["message"]
    if kind == "directory":
        log.rmdir()
    else:
        log.unlink()
    await until(kube, NAMESPACE, name, lambda p: main_status(p).get("restartCount", 0) >= 1)
