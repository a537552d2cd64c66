"""The Node object of this machine, as a kubelet reports it. Pure.

Fields: https://kubernetes.io/docs/reference/node/node-status/.
"""

from serving.embedded.apiserver.nodes.machine import Machine
from serving.objects import Object
from serving.resources import kinds

VERBS = ["get", "list", "watch"]
"""The verbs that discovery lists for nodes."""
READY = "Ready"


def node(
    machine: Machine,
    name: str,
    *,
    version: str,
    created: str,
    changed: str,
    resource_version: str,
    trouble: str,
) -> Object:
    """Return the Node.

    Args:
        machine: the facts of the machine.
        name: the Node's name.
        version: the version of the API server and of the node agent, such as `v1.32.0+slipway.0.1`.
        created: the Node's creation, in RFC 3339.
        changed: the last change of the condition Ready, in RFC 3339.
        resource_version: the Node's resourceVersion since `changed`.
        trouble: why the node agent does not answer; empty if it answers.
    """
    amounts = {"cpu": str(machine.cores), "memory": f"{machine.memory_bytes // 1024}Ki"}
    labels = {
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": machine.operating_system,
    }
    return {
        "kind": kinds.NODE.kind,
        "apiVersion": kinds.NODE.api_version,
        "metadata": {
            "name": name,
            "uid": machine.uid,
            "resourceVersion": resource_version,
            "creationTimestamp": created,
            "labels": labels,
        },
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [_ready(changed, trouble)],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": machine.hostname},
            ],
            "nodeInfo": _node_info(machine, version),
        },
    }


def _ready(changed: str, trouble: str) -> Object:
    """Return the condition Ready, as a kubelet writes it; of a silent agent, as a node controller does."""
    if trouble:
        status, reason = "Unknown", "NodeStatusUnknown"
        message = f"the node agent does not answer: {trouble}"
    else:
        status, reason, message = "True", "KubeletReady", "the node agent answers"
    return {
        "type": READY,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": changed,
    }


def _node_info(machine: Machine, version: str) -> Object:
    return {
        "architecture": machine.architecture,
        "bootID": machine.boot_id,
        "containerRuntimeVersion": f"slipway://{version}",
        "kernelVersion": machine.kernel,
        "kubeProxyVersion": "",
        "kubeletVersion": version,
        "machineID": machine.machine_id,
        "operatingSystem": machine.operating_system,
        "osImage": machine.os_image,
        "systemUUID": machine.machine_id,
    }
