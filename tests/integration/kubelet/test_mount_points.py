"""Mount points of a container: made as root in volumes whose entries the container's processes choose."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.kube import Kube
from serving.resources import kinds
from tests.rig.servers.node_process import (
    PYTHON,
    NodeProcess,
    log_of,
    main_status,
    phase,
    pod,
    until,
    until_gone,
)

NAMESPACE = "default"
ENDED = ("Succeeded", "Failed")
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

LINK = "import os; os.symlink(os.environ['TARGET'], '/volume/point')"
REMOUNT = """
import os, sys
from serving.embedded.kubelet.container import sandbox
from serving.system.isolation import namespaces as ns
source, point = sys.argv[1:]
ns.unshare(ns.CLONE_NEWNS)
ns.make_mounts_private()
ns.mount(source, source, None, ns.MS_BIND)
ns.mount('none', source, None, ns.MS_BIND | ns.MS_REMOUNT | ns.MS_RDONLY | ns.MS_NOEXEC)
fds = [os.open(path, os.O_PATH) for path in (source, point)]
sandbox._bind(*fds, read_only=False)
flags = os.statvfs(point).f_flag
print(*(name for name in ('RDONLY', 'NOSUID', 'NODEV', 'NOEXEC') if flags & getattr(ns, 'MS_' + name)))
"""
NESTED = """
import os
files = open('/volume/host'), open('/volume/new/secret/key')
print(sorted(os.listdir('/volume')), *(file.read() for file in files), sep='|')
open('/volume/mine', 'w').write('x') if os.access('/volume', os.W_OK) else None
"""
WRITES = """
import os, sys
is_first = not os.path.exists('/outer/own')
for path in ('/outer/own', '/outer/in/own', '/tmp/own', '/tmp/cache/own'): open(path, 'w').write('x')
print(sorted(os.listdir('/outer')), open('/outer/config/key').read())
sys.exit(is_first)
"""
TERMINALS = """
import os
terminals = 0
try:
    while terminals < 1000: os.openpty(); terminals += 1
except OSError: pass
print(terminals, len(os.listdir('/dev/pts')))
"""


FILES = """
import os
print(len(os.listdir('/many')), {open(f'/many/key-{n}').read() for n in range(600)})
print({open(f'/large/{n}/copy').read() == 'x' * 900_000 for n in range(3)})
"""


async def remove(kube: Kube, name: str) -> None:
    await kube.delete(kinds.POD, NAMESPACE, name)
    await until_gone(kube, NAMESPACE, name)


def start_error(obj: dict[str, Any]) -> str:
    """Return the message of a container that could not start; empty if it could."""
    states = (main_status(obj).get(name) or {} for name in ("state", "lastState"))
    ends = [state.get("terminated") or {} for state in states]
    return next((end["message"] for end in ends if end.get("reason") == "StartError"), "")


@pytest.mark.parametrize(
    ("volume", "target"),
    [
        ({"hostPath": {"path": "/etc/hostname", "type": "File"}}, "made"),
        ({"emptyDir": {}}, "made"),
        ({"secret": {"secretName": "mounted"}}, "made"),
        ({"secret": {"secretName": "mounted"}}, "there"),
        ({"hostPath": {"path": "/etc/hostname", "type": "File"}}, "file"),
    ],
    ids=["file", "directory", "secret", "secret-on-directory", "file-on-file"],
)
async def test_volume_is_not_mounted_over_a_link_that_the_container_made(
    kube: Kube, node: NodeProcess, tmp_path: Path, volume: dict[str, Any], target: str
) -> None:
    tmp_path.chmod(0o755)  # noqa: ASYNC240 fast
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    secret = {"metadata": {"name": "mounted", "namespace": NAMESPACE}, "stringData": {"key": "value"}}
    await kube.apply(kinds.SECRET, {"apiVersion": "v1", "kind": "Secret", **secret})
    created = await kube.create(
        kinds.POD,
        pod(
            NAMESPACE,
            "links",
            "print('started', flush=True)",
            spec_initContainers=[
                {
                    "name": "attack",
                    "image": PYTHON,
                    "args": ["-c", LINK],
                    "env": [{"name": "TARGET", "value": str(tmp_path / target)}],
                    "volumeMounts": [{"name": "work", "mountPath": "/volume"}],
                }
            ],
            spec_volumes=[{"name": "work", "emptyDir": {}}, {"name": "inner", **volume}],
            volumeMounts=[
                {"name": "work", "mountPath": "/again"},
                {"name": "inner", "mountPath": "/again/point"},
            ],
        ),
    )
    stored = await until(kube, NAMESPACE, "links", lambda obj: bool(start_error(obj)))
    assert "point is a symbolic link that another user may change" in start_error(stored)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]  # noqa: ASYNC240 fast
    assert list((tmp_path / "there").iterdir()) == []
    assert not node.data_dir.pod_log(created["metadata"]["uid"], "main", 0).read_text()
    await remove(kube, "links")


async def test_volumes_are_mounted_inside_a_volume_whose_entries_stay_visible(
    kube: Kube, node: NodeProcess, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)  # noqa: ASYNC240 fast
    (tmp_path / "seen").write_text("x")
    (tmp_path / "link").symlink_to("seen")
    secret = {"metadata": {"name": "mounted", "namespace": NAMESPACE}, "stringData": {"key": "value"}}
    await kube.apply(kinds.SECRET, {"apiVersion": "v1", "kind": "Secret", **secret})
    await kube.create(
        kinds.POD,
        pod(
            NAMESPACE,
            "nested",
            NESTED,
            spec_restartPolicy="Never",
            spec_volumes=[
                {"name": "work", "hostPath": {"path": str(tmp_path)}},
                {"name": "host", "hostPath": {"path": "/etc/hostname", "type": "File"}},
                {"name": "secret", "secret": {"secretName": "mounted"}},
            ],
            volumeMounts=[
                {"name": "work", "mountPath": "/volume"},
                {"name": "host", "mountPath": "/volume/host"},
                {"name": "secret", "mountPath": "/volume/new/secret"},
            ],
        ),
    )
    ended = await until(kube, NAMESPACE, "nested", phase("Succeeded"))
    hostname = Path("/etc/hostname").read_text()  # noqa: ASYNC240 fast
    assert log_of(node.data_dir, ended) == f"['host', 'link', 'new', 'seen']|{hostname}|value\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "seen"]  # noqa: ASYNC240 fast
    await remove(kube, "nested")


async def test_directory_of_the_container_is_writable_when_a_volume_is_mounted_inside(
    kube: Kube, node: NodeProcess
) -> None:
    config = {"metadata": {"name": "mounted", "namespace": NAMESPACE}, "data": {"key": "value"}}
    await kube.apply(kinds.CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", **config})
    inner = {"in": {"emptyDir": {}}, "cache": {"emptyDir": {}}, "config": {"configMap": {"name": "mounted"}}}
    created = pod(
        NAMESPACE,
        "writes",
        WRITES,
        spec_restartPolicy="OnFailure",
        spec_volumes=[{"name": "outer", "emptyDir": {}}, *({"name": name} | inner[name] for name in inner)],
        volumeMounts=[
            {"name": "outer", "mountPath": "/outer"},
            {"name": "in", "mountPath": "/outer/in"},
            {"name": "config", "mountPath": "/outer/config"},
            {"name": "cache", "mountPath": "/tmp/cache"},
        ],
    )
    await kube.create(kinds.POD, created)
    ended = await until(kube, NAMESPACE, "writes", lambda obj: obj["status"].get("phase") in ENDED)
    for run in (0, 1):
        log = log_of(node.data_dir, ended, run)
        assert log == "['config', 'in', 'own'] value\n"
    await remove(kube, "writes")


def test_volume_keeps_the_limits_of_the_mount_when_the_machine_has_it_read_only(tmp_path: Path) -> None:
    paths = [tmp_path / "source", tmp_path / "point"]
    for path in paths:
        path.mkdir()
    flags = subprocess.run(
        [sys.executable, "-c", REMOUNT, *map(str, paths)], check=True, capture_output=True, text=True
    )
    assert flags.stdout == "RDONLY NOSUID NODEV NOEXEC\n"


async def test_container_has_terminals_of_its_own(kube: Kube, node: NodeProcess) -> None:
    await kube.create(kinds.POD, pod(NAMESPACE, "terminals", TERMINALS, spec_restartPolicy="Never"))
    ended = await until(kube, NAMESPACE, "terminals", phase("Succeeded"))
    opened, entries = map(int, log_of(node.data_dir, ended).split())
    assert opened == 64
    assert entries == opened + 1, "those of other processes are not shown; `ptmx` makes new ones"
    await remove(kube, "terminals")


async def test_every_file_of_a_config_map_is_complete_when_they_are_many_or_map_a_large_key(
    kube: Kube, node: NodeProcess
) -> None:
    maps = {"many": {f"key-{n}": "v" for n in range(600)}, "large": {"key": "x" * 900_000}}
    for name, data in maps.items():
        meta = {"name": name, "namespace": NAMESPACE}
        await kube.create(kinds.CONFIG_MAP, {"metadata": meta, "data": data})
    items = [{"key": "key", "path": f"{n}/copy"} for n in range(3)]
    created = pod(
        NAMESPACE,
        "files",
        FILES,
        spec_restartPolicy="Never",
        spec_volumes=[
            {"name": "many", "configMap": {"name": "many"}},
            {"name": "large", "configMap": {"name": "large", "items": items}},
        ],
        volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in maps],
    )
    await kube.create(kinds.POD, created)
    stored = await until(kube, NAMESPACE, "files", lambda p: p["status"].get("phase") in ENDED)
    assert log_of(node.data_dir, stored) == "600 {'v'}\n{True}\n"
    for name in maps:
        await kube.delete(kinds.CONFIG_MAP, NAMESPACE, name)
    await remove(kube, "files")
