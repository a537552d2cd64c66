"""The Node object of this machine, as a kubelet reports it. Pure.

Fields: https://kubernetes.io/docs/reference/node/node-status/.
"""

from serving.embedded.apiserver.nodes.machine import Machine
from serving.objects import Object
from serving.resources import kinds

VERBS = ["get", "list", "watch"]
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
        machine: what the Node runs on.
        name: of the Node.
        version: of the API server and the node agent.
        created: RFC 3339, since when there has been this node.
        changed: RFC 3339, since when it has been ready, or not.
        resource_version: of the state that began at `changed`.
        trouble: why the node agent does not answer; empty if it does.
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
    """Return the condition; that of a silent agent is the one which a cluster's node controller writes."""
    if trouble:
        state = ("Unknown", "NodeStatusUnknown", f"the node agent does not answer: {trouble}")
    else:
        state = ("True", "KubeletReady", "the node agent answers")
    status, reason, message = state
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
