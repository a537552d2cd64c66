import contextlib
import json
import os
import re
import sys
import time
import uuid
from pathlib import Path

import pytest

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.kube import Kube
from serving.resources import kinds
from serving.system import procfs
from tests.rig.servers.node_process import (
    SERVER,
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
root = pytest.mark.root
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


async def run(kube: Kube, name: str, script: str, **spec: object) -> dict:
    return await kube.create(kinds.POD, pod(NAMESPACE, name, script, **spec))


async def test_pod_succeeds_and_keeps_its_log_when_its_command_ends_with_zero(
    kube: Kube, node: NodeProcess
) -> None:
    await run(kube, "ends", "print('hello'); print(1)", spec_restartPolicy="Never")
    stored = await until(kube, NAMESPACE, "ends", phase("Succeeded"))
    state = main_status(stored)["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (0, "Completed")
    assert log_of(node.data_dir, stored) == "hello\n1\n"


async def test_crashing_container_restarts_with_back_off_and_last_state(kube: Kube) -> None:
    await run(kube, "crashes", "import sys; sys.exit(3)")
    stored = await until(
        kube,
        NAMESPACE,
        "crashes",
        lambda p: main_status(p).get("restartCount", 0) >= 3 and "waiting" in main_status(p)["state"],
    )
    assert main_status(stored)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert main_status(stored)["lastState"]["terminated"]["exitCode"] == 3
    assert stored["status"]["phase"] == "Running"
    assert not is_ready(stored)
    await kube.delete(kinds.POD, NAMESPACE, "crashes")
    await until_gone(kube, NAMESPACE, "crashes")


async def test_pod_is_ready_by_its_probe_and_unready_during_deletion(kube: Kube, node: NodeProcess) -> None:
    readiness = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 1}
    created = await run(
        kube,
        "serves",
        "open('/tmp/fine','w')\n" + SERVER,
        readinessProbe=readiness,
        ports=[{"name": "http", "containerPort": 8080}],
    )
    begun = time.monotonic()
    stored = await until(kube, NAMESPACE, "serves", is_ready)
    assert time.monotonic() - begun < 3
    assert stored["status"]["podIP"].startswith("127.77.")
    await kube.delete(kinds.POD, NAMESPACE, "serves")
    await until(kube, NAMESPACE, "serves", lambda p: not is_ready(p), 2)
    await until_gone(kube, NAMESPACE, "serves")
    assert not (node.data_dir.pods / created["metadata"]["uid"]).exists()


async def test_failing_liveness_probe_restarts_the_container(kube: Kube) -> None:
    liveness = {
        "exec": {"command": ["test", "!", "-e", "/tmp/bad"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    await run(
        kube,
        "sick",
        "import time, os; open('/tmp/bad','w') if os.environ['RUN'] else 0; time.sleep(60)",
        env=[{"name": "RUN", "value": "1"}],
        livenessProbe=liveness,
    )
    stored = await until(kube, NAMESPACE, "sick", lambda p: main_status(p).get("restartCount", 0) >= 1)
    assert main_status(stored)["lastState"]["terminated"]["exitCode"] == 143
    await kube.delete(kinds.POD, NAMESPACE, "sick")
    await until_gone(kube, NAMESPACE, "sick")


async def test_hook_runs_before_sigterm_when_a_liveness_probe_fails(kube: Kube) -> None:
    hooked = f"/tmp/hooked-{uuid.uuid4()}"
    await run(
        kube,
        "hooked",
        f"import os, sys, time\nwhile not os.path.exists({hooked!r}): time.sleep(0.01)\nsys.exit(9)",
        livenessProbe={"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1},
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", f"touch {hooked}; sleep 60"]}}},
    )
    stored = await until(kube, NAMESPACE, "hooked", lambda p: main_status(p).get("restartCount", 0) >= 1)
    assert main_status(stored)["lastState"]["terminated"]["exitCode"] == 9
    await kube.delete(kinds.POD, NAMESPACE, "hooked")
    await until_gone(kube, NAMESPACE, "hooked")


async def test_init_containers_run_in_sequence_before_the_others(kube: Kube, node: NodeProcess) -> None:
    python = "slipway.dev/runtimes/python"
    inits = [{"name": f"init-{n}", "image": python, "args": ["-c", f"print({n})"]} for n in (1, 2)]
    await run(kube, "inits", "print('main')", spec_restartPolicy="Never", spec_initContainers=inits)
    stored = await until(kube, NAMESPACE, "inits", phase("Succeeded"))
    ends = [s["state"]["terminated"]["reason"] for s in stored["status"]["initContainerStatuses"]]
    assert ends == ["Completed", "Completed"]


async def test_unknown_image_is_refused_unless_there_is_a_command(kube: Kube) -> None:
    await run(kube, "unknown", "", image="nginx:latest")
    stored = await until(kube, NAMESPACE, "unknown", lambda p: "waiting" in main_status(p).get("state", {}))
    waiting = main_status(stored)["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert "spec.containers[0].image" in waiting["message"]
    await kube.delete(kinds.POD, NAMESPACE, "unknown")
    await run(
        kube,
        "known",
        "",
        image="nginx:latest",
        command=["echo", "$(POD_IP)"],
        args=[],
        spec_restartPolicy="Never",
    )
    await until(kube, NAMESPACE, "known", phase("Succeeded"))


async def test_command_python_is_the_interpreter_of_this_installation(kube: Kube, node: NodeProcess) -> None:
    command = ["python", "-c", "import sys; print(sys.executable)"]
    await run(kube, "by-name", "", command=command, args=[], spec_restartPolicy="Never")
    stored = await until(kube, NAMESPACE, "by-name", phase("Succeeded"))
    assert Path(log_of(node.data_dir, stored).strip()).parent == Path(sys.executable).parent


async def test_message_of_a_command_that_does_not_exist_has_its_path_as_text(kube: Kube) -> None:
    await run(kube, "absent", "", command=["no-such-program"], args=[], spec_restartPolicy="Never")
    stored = await until(kube, NAMESPACE, "absent", phase("Failed"))
    ended = main_status(stored)["state"]["terminated"]
    assert ended["reason"] == "StartError"
    assert re.fullmatch(
        r"no-such-program: No such file or directory \(/\S+/no-such-program\)", ended["message"]
    )


async def test_environment_from_secrets_config_maps_and_fields_reaches_the_container(
    kube: Kube, node: NodeProcess
) -> None:
    await run(
        kube,
        "env",
        "import os, json; print(json.dumps(dict(os.environ)))",
        spec_restartPolicy="Never",
        env=[
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "env-s", "key": "k"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "env-c", "key": "k"}}},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "BOTH", "value": "$(S)-$(N)"},
        ],
    )
    blocked = await until(
        kube,
        NAMESPACE,
        "env",
        lambda p: (
            "waiting" in main_status(p).get("state", {})
            and main_status(p)["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        ),
    )
    assert "env-s" in main_status(blocked)["state"]["waiting"]["message"]
    await kube.create(
        kinds.CONFIG_MAP, {"metadata": {"name": "env-c", "namespace": NAMESPACE}, "data": {"k": "conf"}}
    )
    await kube.create(
        kinds.SECRET, {"metadata": {"name": "env-s", "namespace": NAMESPACE}, "data": {"k": "aGlkZGVu"}}
    )
    stored = await until(kube, NAMESPACE, "env", phase("Succeeded"))
    await kube.delete(kinds.CONFIG_MAP, NAMESPACE, "env-c")
    await kube.delete(kinds.SECRET, NAMESPACE, "env-s")
    environment = json.loads(log_of(node.data_dir, stored))
    assert environment["BOTH"] == "hidden-env"
    assert environment["C"] == "conf"
    assert not {name for name in environment if name.startswith("SLIPWAY")}
    assert not environment.keys() & {"PYTHONPATH", "OMP_NUM_THREADS"}


async def test_log_of_a_container_is_bounded(kube: Kube, node: NodeProcess) -> None:
    await run(kube, "chatty", "for i in range(20000): print(i)", spec_restartPolicy="Never")
    stored = await until(kube, NAMESPACE, "chatty", phase("Succeeded"))
    log = node.data_dir.pod_log(stored["metadata"]["uid"], "main", 0)
    assert log.read_text().endswith("19999\n")
    assert log.stat().st_size + log.with_name("0.log.1").stat().st_size < 200_000


@root
@needs_root
async def test_container_runs_as_a_user_of_its_pod_without_token_and_home_when_root(
    kube: Kube, node: NodeProcess, tmp_path: Path
) -> None:
    script = f"""
import os, sklearn
token, home = {str(node.data_dir.token)!r}, {str(Path.home())!r}
entries = os.listdir(home) if os.path.isdir(home) else []  # a home below /tmp is not there at all
print(os.getuid(), os.path.exists(token), entries, os.listdir('/tmp'))
print(open('/etc/model-secret/k').read(), open('/mnt/model/models/m').read())
open('/outputs/a', 'w').write('x')
try: open('/mnt/model/new', 'w')
except OSError as e: print(e.errno)
print([line for line in open('/proc/self/status') if line.startswith(('NoNewPrivs', 'CapEff'))])
"""
    trained = tmp_path / "trained"
    trained.mkdir()
    (trained / "m").write_text("weights")
    store = ModelStore(node.data_dir.models)
    digest = build_image(trained, store, repository="slipway.local/default/m", lineage={}).digest
    await kube.create(
        kinds.SECRET, {"metadata": {"name": "jail-s", "namespace": NAMESPACE}, "data": {"k": "aGlkZGVu"}}
    )
    await run(
        kube,
        "jailed",
        script,
        spec_restartPolicy="Never",
        spec_volumes=[
            {"name": "s", "secret": {"secretName": "jail-s"}},
            {"name": "out", "emptyDir": {}},
            {"name": "model", "image": {"reference": f"slipway.local/default/m@{digest}"}},
        ],
        volumeMounts=[
            {"name": "s", "mountPath": "/etc/model-secret"},
            {"name": "out", "mountPath": "/outputs"},
            {"name": "model", "mountPath": "/mnt/model"},
        ],
    )
    stored = await until(
        kube, NAMESPACE, "jailed", lambda p: p["status"].get("phase") in ("Succeeded", "Failed"), 30
    )
    await kube.delete(kinds.SECRET, NAMESPACE, "jail-s")
    lines = log_of(node.data_dir, stored).splitlines()
    user, token_exists = lines[0].split()[:2]
    assert int(user) in range(32_768, 2**31)
    assert token_exists == "False"
    assert lines[1] == "hidden weights"
    assert lines[2] == "30"
    assert "NoNewPrivs:\\t1" in lines[3]
    assert "CapEff:\\t0000000000000000" in lines[3]
    assert (node.data_dir.pod_volume(stored["metadata"]["uid"], "out") / "a").read_text() == "x"
    assert not Path("/outputs").exists()  # noqa: ASYNC240 fast
    assert not Path("/etc/model-secret").exists()  # noqa: ASYNC240 fast


@root
@needs_root
async def test_memory_is_limited_and_an_oom_kill_is_reported_when_root(kube: Kube) -> None:
    await run(
        kube,
        "greedy",
        "x = bytearray(200 << 20); print(len(x))",
        spec_restartPolicy="Never",
        resources={"limits": {"memory": "64Mi", "cpu": "500m"}},
    )
    stored = await until(kube, NAMESPACE, "greedy", phase("Failed"))
    ended = main_status(stored)["state"]["terminated"]
    enforced = {c["type"]: c["status"] for c in stored["status"]["conditions"]}["slipway.dev/LimitsEnforced"]
    assert enforced == "True"
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


def command_lines() -> list[bytes]:
    lines = []
    for pid in procfs.processes():
        with contextlib.suppress(OSError):
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    return lines


@root
@needs_root
async def test_processes_of_a_container_end_with_it(kube: Kube, node: NodeProcess) -> None:
    script = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print('marked', flush=True); os.execvp('sleep', ['sleep', '98.765'])
    os._exit(0)
time.sleep(0.3)
"""
    await run(kube, "forks", script, spec_restartPolicy="Never")
    stored = await until(kube, NAMESPACE, "forks", phase("Succeeded"))
    assert log_of(node.data_dir, stored) == "marked\n"
    assert b"sleep\x0098.765\x00" not in command_lines()


async def test_container_that_ignores_sigterm_is_killed_after_its_grace(kube: Kube) -> None:
    await run(
        kube,
        "stubborn",
        "import signal, time; signal.signal(15, signal.SIG_IGN); print(1); time.sleep(99)",
        spec_terminationGracePeriodSeconds=1,
    )
    await until(kube, NAMESPACE, "stubborn", is_ready)
    begun = time.monotonic()
    await kube.delete(kinds.POD, NAMESPACE, "stubborn")
    await until_gone(kube, NAMESPACE, "stubborn")
    assert time.monotonic() - begun < 5
