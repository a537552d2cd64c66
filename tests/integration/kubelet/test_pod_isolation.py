"""Attacks of one Pod on another, and of another user of the machine on a Pod."""

import asyncio
import contextlib
import http.server
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving import errors
from serving.embedded.kubelet.records import PodDirectory
from serving.kube import Kube
from serving.resources import kinds, names
from tests.rig.servers.node_process import (
    POD_PIDS_LIMIT,
    NodeProcess,
    is_ready,
    log_of,
    main_status,
    phase,
    pod,
    until,
    until_gone,
)

NAMESPACE = "default"
OTHER_USER = 65_534
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

WAITS = "import time; print(1, flush=True); time.sleep(99)"
ATTACK = """
import json, os
victim, read = int(os.environ['VICTIM']), []
for name in os.listdir('/proc'):
    if name.isdigit():
        for path in ('environ', 'root/mnt/secret/key', 'root/tmp/private'):
            try: read.append(open(f'/proc/{name}/{path}').read())
            except OSError: pass
def outcome(attack):
    try: return str(attack())
    except OSError as error: return type(error).__name__
print(json.dumps({
    'user': os.getuid(),
    'groups': os.getgroups(),
    'processes': sorted(int(name) for name in os.listdir('/proc') if name.isdigit()),
    'read': read,
    'signal': outcome(lambda: os.kill(victim, 0)),
    'memory': outcome(lambda: open(f'/proc/{victim}/mem', 'rb')),
    'shim': outcome(lambda: os.listdir('/proc/1/root')),
    'shared': outcome(lambda: os.listdir('/dev/shm')),
}))
"""
FORKS = """
import errno, json, os, signal
children, refused = 0, ''
while not refused and children < 2000:
    try: pid = os.fork()
    except OSError as error: refused = errno.errorcode[error.errno]
    else:
        if pid == 0: signal.pause()
        children += 1
print(json.dumps({'processes': children + 1, 'refused': refused}), flush=True)
signal.pause()
"""
SOCKET_SERVER = """
import http.server, os, socket
assert os.environ['LISTEN_PID'] == str(os.getpid())
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def address_string(self): return 'unix'
class Server(http.server.HTTPServer):
    def get_request(self): return (self.socket.accept()[0], ('unix', 0))
server = Server(('', 0), H, bind_and_activate=False)
server.socket = socket.socket(fileno=3)
print('up', flush=True)
server.serve_forever()
"""


async def remove(kube: Kube, name: str) -> None:
    await kube.delete(kinds.POD, NAMESPACE, name)
    await until_gone(kube, NAMESPACE, name)


async def test_container_reaches_no_process_of_another_pod(kube: Kube, node: NodeProcess) -> None:
    await kube.create(
        kinds.SECRET,
        {"metadata": {"name": "prod", "namespace": NAMESPACE}, "stringData": {"key": "TOP-SECRET"}},
    )
    secret = {"secretKeyRef": {"name": "prod", "key": "key"}}
    script = "open('/tmp/private', 'w').write('TOP-SECRET'); open('/dev/shm/v', 'w')\n" + WAITS
    victim = pod(
        NAMESPACE,
        "victim",
        script,
        env=[{"name": "PASSWORD", "valueFrom": secret}],
        spec_volumes=[{"name": "s", "secret": {"secretName": "prod"}}],
        volumeMounts=[{"name": "s", "mountPath": "/mnt/secret"}],
    )
    running = await kube.create(kinds.POD, victim)
    log = node.data_dir.pod_log(running["metadata"]["uid"], "main", 0)
    await until(kube, NAMESPACE, "victim", lambda _: log.exists() and log.read_text() == "1\n")
    run = next(PodDirectory(node.data_dir.pods / running["metadata"]["uid"]).latest())
    identities = run.identities()
    assert identities is not None
    pid = identities.main.pid
    with contextlib.suppress(errors.AlreadyExists):
        await kube.create(kinds.NAMESPACE, {"metadata": {"name": "evil"}})
    for namespace in (NAMESPACE, "evil"):
        env = [{"name": "VICTIM", "value": str(pid)}]
        attack = pod(namespace, "attack", ATTACK, env=env, spec_restartPolicy="Never")
        attack["metadata"]["labels"] = {"attack": namespace}
        await kube.create(kinds.POD, attack)
        ended = await until(kube, namespace, "attack", phase("Succeeded"))
        seen = json.loads(log_of(node.data_dir, ended))
        assert "TOP-SECRET" not in "".join(seen["read"])
        assert seen["processes"] == [1, 2]
        assert (seen["signal"], seen["memory"], seen["shim"]) == (
            "ProcessLookupError",
            "FileNotFoundError",
            "PermissionError",
        )
        assert seen["shared"] == "[]"
        assert seen["groups"] == []
        assert seen["user"] not in (0, OTHER_USER, Path(f"/proc/{pid}").stat().st_uid)  # noqa: ASYNC240 fast
        await kube.delete(kinds.POD, namespace, "attack")
        await until_gone(kube, namespace, "attack")
    await remove(kube, "victim")
    await kube.delete(kinds.SECRET, NAMESPACE, "prod")


async def test_pod_keeps_its_user_when_its_container_restarts(kube: Kube, node: NodeProcess) -> None:
    script = "import os, sys; open('/scratch/users', 'a').write(f'{os.getuid()} '); sys.exit(3)"
    created = await kube.create(
        kinds.POD,
        pod(
            NAMESPACE,
            "restarts",
            script,
            spec_volumes=[{"name": "scratch", "emptyDir": {}}],
            volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
        ),
    )
    await until(kube, NAMESPACE, "restarts", lambda p: main_status(p).get("restartCount", 0) >= 2)
    users = (node.data_dir.pod_volume(created["metadata"]["uid"], "scratch") / "users").read_text().split()
    assert len(users) >= 2
    assert len(set(users)) == 1
    await remove(kube, "restarts")


async def test_next_attempt_of_a_job_writes_where_the_first_has_written(
    kube: Kube, node: NodeProcess, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    tmp_path.chmod(0o755)  # noqa: ASYNC240 fast
    for name in ("first", "second"):
        await kube.create(
            kinds.POD,
            pod(
                NAMESPACE,
                name,
                "import os; open('/out/log', 'a').write('x'); os.path.lexists('/out/passwd')"
                " or os.symlink('/etc/passwd', '/out/passwd')",
                spec_restartPolicy="Never",
                spec_volumes=[
                    {"name": "out", "hostPath": {"path": str(shared), "type": "DirectoryOrCreate"}}
                ],
                volumeMounts=[{"name": "out", "mountPath": "/out"}],
            ),
        )
        ended = await until(
            kube, NAMESPACE, name, lambda p: p["status"].get("phase") in ("Succeeded", "Failed")
        )
        assert log_of(node.data_dir, ended) == ""
        await remove(kube, name)
    assert (shared / "log").read_text() == "xx"
    assert (shared / "passwd").lstat().st_uid == (shared / "log").stat().st_uid
    assert (shared / "passwd").stat().st_uid == 0, "a link must not give away its target"


@pytest.mark.parametrize("kind", ["Directory", "DirectoryOrCreate"])
async def test_data_directory_is_not_mounted_when_a_link_leads_there(
    kube: Kube, node: NodeProcess, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "link").symlink_to(node.data_dir.root)
    name = f"linked-{kind.lower()}"
    volume = {"name": "v", "hostPath": {"path": f"{tmp_path}/link/pods", "type": kind}}
    mount = {"name": "v", "mountPath": "/mnt/v"}
    await kube.create(kinds.POD, pod(NAMESPACE, name, WAITS, spec_volumes=[volume], volumeMounts=[mount]))
    stored = await until(
        kube, NAMESPACE, name, lambda p: p["status"].get("phase") == "Running" or message_of(p) is not None
    )
    assert message_of(stored) == f"hostPath {tmp_path}/link/pods: leads to the data directory"
    await remove(kube, name)


async def test_pod_whose_undeclared_port_another_user_has_taken_is_not_ready(
    kube: Kube, node: NodeProcess
) -> None:
    readiness = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1}
    await kube.create(kinds.POD, pod(NAMESPACE, "robbed", WAITS, readinessProbe=readiness))
    stored = await until(kube, NAMESPACE, "robbed", lambda p: "running" in main_status(p).get("state", {}))
    with answering(stored["status"]["podIP"]) as asked:
        await until_event(kube, "robbed", "is taken by a process of user 0, not of this Pod")
        assert not is_ready(await kube.get(kinds.POD, NAMESPACE, "robbed"))
    assert not asked, "the thief was believed"
    await remove(kube, "robbed")


async def test_passed_socket_is_reached_by_the_node_and_by_no_other_user(
    kube: Kube, node: NodeProcess
) -> None:
    readiness = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1}
    serves = pod(
        NAMESPACE, "serves", SOCKET_SERVER, readinessProbe=readiness, ports=[{"containerPort": 8080}]
    )
    serves["metadata"]["annotations"] = {names.SOCKET_PORT_ANNOTATION: "8080"}
    await kube.create(kinds.POD, serves)
    stored = await until(kube, NAMESPACE, "serves", is_ready)
    address = stored["status"]["podIP"]
    path = node.data_dir.pod_sockets / f"{address}:8080"
    assert connected(str(path)) == "connected"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert as_other_user(lambda: connected(str(path))) == "PermissionError"
    with pytest.raises(ConnectionRefusedError), socket.create_connection((address, 8080)):
        pass
    await remove(kube, "serves")
    assert not path.exists()


async def test_pod_gets_no_more_processes_than_its_limit_and_others_get_theirs(
    kube: Kube, node: NodeProcess
) -> None:
    bomb = await kube.create(kinds.POD, pod(NAMESPACE, "bomb", FORKS))
    log = node.data_dir.pod_log(bomb["metadata"]["uid"], "main", 0)
    running = await until(
        kube,
        NAMESPACE,
        "bomb",
        lambda stored: "conditions" in stored["status"] and log.exists() and "}" in log.read_text(),
    )
    if any("pids" in condition.get("message", "") for condition in running["status"]["conditions"]):
        pytest.skip("the number of processes is not limited here: no cgroup controller for pids")
    assert json.loads(log.read_text()) == {"processes": POD_PIDS_LIMIT, "refused": "EAGAIN"}
    family = "import os; [os.waitpid(os.fork() or os._exit(0), 0) for _ in range(9)]"
    await kube.create(kinds.POD, pod(NAMESPACE, "family", family, spec_restartPolicy="Never"))
    await until(kube, NAMESPACE, "family", phase("Succeeded"))
    await remove(kube, "bomb")
    await remove(kube, "family")


async def test_container_is_killed_before_components_when_the_machine_has_no_memory_left(
    kube: Kube, node: NodeProcess
) -> None:
    program = "print(open('/proc/self/oom_score_adj').read(), end='')"
    created = await kube.create(kinds.POD, pod(NAMESPACE, "scored", program, spec_restartPolicy="Never"))
    await until(kube, NAMESPACE, "scored", phase("Succeeded"))
    assert node.data_dir.pod_log(created["metadata"]["uid"], "main", 0).read_text() == "1000\n"
    await remove(kube, "scored")


def message_of(pod: dict[str, Any]) -> str | None:
    """Return why the container of a Pod waits."""
    message: str | None = main_status(pod).get("state", {}).get("waiting", {}).get("message")
    return message


def connected(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError as error:
            return type(error).__name__
    return "connected"


def as_other_user(attack) -> str:
    """Return the result of `attack` in a process of another user."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
            os.write(writer, attack().encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as answer:
        return answer.read().decode()


@contextlib.contextmanager
def answering(address: str) -> Iterator[list[str]]:
    """Answer every request at an address; yield the paths that were asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer((address, 8080), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


async def until_event(kube: Kube, name: str, text: str) -> None:
    """Wait for an Event of a Pod whose message contains a text."""
    async with asyncio.timeout(15):
        while True:
            events = (await kube.list(kinds.EVENT_V1, NAMESPACE)).items
            if any(e["involvedObject"]["name"] == name and text in e["message"] for e in events):
                return
            await asyncio.sleep(0.05)
