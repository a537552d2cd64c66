from serving.embedded.workloads import finished_pods


def pod(name: str, second: int, phase: str = "Succeeded", **meta: object) -> dict:
    ended = {"state": {"terminated": {"finishedAt": f"2026-01-01T00:00:{second:02}Z"}}}
    return {
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", **meta},
        "status": {"phase": phase, "containerStatuses": [ended]},
    }


def names(all_pods: list[dict]) -> list[str]:
    return [pod["metadata"]["name"] for pod in all_pods]


def test_oldest_finished_pods_are_deleted_first():
    all_pods = [pod("c", 3), pod("a", 1), pod("d", 4, "Failed"), pod("b", 2)]
    assert names(finished_pods.surplus(all_pods, 2)) == ["a", "b"]
    assert finished_pods.surplus(all_pods, 4) == []


def test_running_terminating_and_owned_pods_are_not_surplus():
    owner = [{"kind": "Job", "name": "j"}]
    all_pods = [
        pod("runs", 1, "Running"),
        pod("leaves", 2, deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("owned", 3, ownerReferences=owner),
        pod("last", 4),
    ]
    assert names(finished_pods.surplus(all_pods, 0)) == ["last"]
    assert finished_pods.surplus(all_pods, 1) == []
