"""The short description of a Pod."""

from typing import Any

import yaml

from serving.cli.objects import pod_summary, sections

POD: dict[str, Any] = {
    "metadata": {"name": "a"},
    "spec": {
        "restartPolicy": "Never",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "nodeName": "local",
        "containers": [
            {
                "name": "main",
                "image": "none",
                "command": ["serve"],
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"key": "k"}}},
                ],
                "volumeMounts": [{"name": "model", "mountPath": "/model"}],
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
            }
        ],
        "volumes": [{"name": "model", "image": {"reference": "r@sha256:1"}}],
    },
    "status": {
        "phase": "Pending",
        "podIP": "127.77.0.2",
        "containerStatuses": [
            {
                "name": "main",
                "containerID": "x",
                "restartCount": 2,
                "ready": False,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": ""}},
                "lastState": {},
            }
        ],
    },
}


def test_a_container_is_shown_with_what_was_set_and_its_state() -> None:
    assert yaml.safe_load(pod_summary.containers(POD)) == {
        "main": {
            "image": "none",
            "command": ["serve"],
            "env": {"A": "1", "B": {"secretKeyRef": {"key": "k"}}},
            "mounts": {"/model": "model"},
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "ready": False,
            "restarts": 2,
        }
    }


def test_a_pod_is_shown_with_its_phase_node_and_volumes_and_without_defaults() -> None:
    assert yaml.safe_load(pod_summary.of_pod(POD)) == {
        "phase": "Pending",
        "node": "local",
        "ip": "127.77.0.2",
        "restartPolicy": "Never",
        "volumes": {"model": {"image": {"reference": "r@sha256:1"}}},
    }


def test_a_pod_without_spec_and_status_is_shown_as_empty() -> None:
    assert pod_summary.of_pod({}) == pod_summary.containers({}) == sections.NONE


def test_a_status_is_shown_without_conditions_and_empty_fields() -> None:
    lineage = {"kind": "Job", "path": "", "uri": "", "image": ""}
    status = {"phase": "Ready", "attempts": 0, "conditions": [{}], "lineage": lineage, "metrics": {}}
    assert yaml.safe_load(sections.status(status)) == {
        "phase": "Ready",
        "attempts": 0,
        "lineage": {"kind": "Job"},
    }
