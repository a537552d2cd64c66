"""The system calls that a container may not use, forked or executed, as root or as an ordinary user."""

import json

from serving.kube import Kube
from serving.resources import kinds
from tests.rig.servers.node_process import NodeProcess, is_ready, log_of, phase, pod, until, until_gone

NAMESPACE = "default"

CALLS = """
import ctypes, errno, json, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def outcome(call, *arguments):
    ctypes.set_errno(0)
    call(*arguments)
    return errno.errorcode.get(ctypes.get_errno(), "done")
CLONE_NEWUSER = 0x10000000
ADDR_NO_RANDOMIZE = 0x40000
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
print(json.dumps({
    "unshare": outcome(libc.unshare, CLONE_NEWUSER),
    "ptrace": outcome(libc.ptrace, 0, 0, 0, 0),
    "mount": outcome(libc.mount, b"none", b"/tmp", b"tmpfs", 0, None),
    "io_uring_setup": outcome(libc.syscall, ctypes.c_long(425), 1, None),
    "pidfd_getfd": outcome(libc.syscall, ctypes.c_long(438), -1, -1, 0),
    "personality": outcome(libc.personality, ADDR_NO_RANDOMIZE),
    "clone3": outcome(libc.syscall, ctypes.c_long(435), None, 0),
    "vsock": outcome(libc.socket, 40, 1, 0),
    "program": subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout,
}))
"""
REFUSES_PTRACE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != -1)"


async def test_container_makes_no_user_namespace_and_traces_nothing(kube: Kube, node: NodeProcess) -> None:
    await kube.create(kinds.POD, pod(NAMESPACE, "calls", CALLS, spec_restartPolicy="Never"))
    stored = await until(kube, NAMESPACE, "calls", phase("Succeeded"))
    assert json.loads(log_of(node.data_dir, stored)) == {
        "unshare": "EPERM",
        "ptrace": "EPERM",
        "mount": "EPERM",
        "io_uring_setup": "EPERM",
        "pidfd_getfd": "EPERM",
        "personality": "EPERM",
        "clone3": "ENOSYS",
        "vsock": "EPERM",
        "program": "1\n",
    }


async def test_command_of_a_probe_is_under_the_filter_too(kube: Kube, node: NodeProcess) -> None:
    command = ["python", "-c", REFUSES_PTRACE]
    readiness = {"exec": {"command": command}, "periodSeconds": 1, "timeoutSeconds": 5}
    waits = "import time; time.sleep(99)"
    await kube.create(kinds.POD, pod(NAMESPACE, "probed", waits, readinessProbe=readiness))
    await until(kube, NAMESPACE, "probed", is_ready)
    await kube.delete(kinds.POD, NAMESPACE, "probed")
    await until_gone(kube, NAMESPACE, "probed")
