import pytest

from serving.objects import Object
from serving.planning.inference import replicas
from serving.resources.kubernetes.conditions import StatusReason
from serving.settings import RuntimeImageSettings


def pod(
    name: str = "p",
    *,
    ready: bool = False,
    last_state: Object | None = None,
    image: str = "",
    **state: Object,
) -> Object:
    container = {
        "name": "predictor",
        "image": image,
        "ready": ready,
        "state": state,
        "lastState": last_state or {},
    }
    return {"metadata": {"name": name}, "status": {"containerStatuses": [container]}}


def terminated(code: int = 3, reason: str = "Error", **fields: str) -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, **fields}}


def deployment(desired: int, ready: int, **conditions: tuple[str, str]) -> Object:
    condition_list = [
        {"type": t, "status": status, "message": text} for t, (status, text) in conditions.items()
    ]
    return {"spec": {"replicas": desired}, "status": {"readyReplicas": ready, "conditions": condition_list}}


def problem(deployment: Object | None, *pods: Object, all_ready: bool = False) -> StatusReason | None:
    state = None if deployment is None else replicas.read(deployment, pods)
    return replicas.problem("r", state, all_ready=all_ready)


BACK_OFF = {"reason": "CrashLoopBackOff", "message": "back-off"}


@pytest.mark.parametrize(
    ("failed_pod", "reason", "message"),
    [
        (
            pod(waiting=BACK_OFF, last_state=terminated()),
            "CrashLoopBackOff",
            "container predictor ended with exit code 3",
        ),
        (
            pod(running={}, last_state=terminated()),
            "CrashLoopBackOff",
            "container predictor ended with exit code 3",
        ),
        (pod(**terminated()), "CrashLoopBackOff", "container predictor ended with exit code 3"),
        (pod(**terminated(0, "Completed")), "CrashLoopBackOff", "container predictor ended with exit code 0"),
        (
            pod(waiting=BACK_OFF, last_state=terminated(137, "OOMKilled", message="over its limit")),
            "OOMKilled",
            "container predictor ended with exit code 137: over its limit",
        ),
        (
            pod(waiting={"reason": "ErrImagePull", "message": "not in the store"}),
            "ErrImagePull",
            "container predictor: not in the store",
        ),
    ],
)
def test_the_problem_of_a_failed_container_names_it_and_its_reason(
    failed_pod: Object, reason: str, message: str
) -> None:
    assert replicas.pod_problem(failed_pod) == StatusReason(reason, message)


RUNTIME = "slipway.dev/runtimes/sklearn"
LOG = "2026-01-01 ERROR Noise: x\nDigestMismatch: model.joblib: must be sha256:1, got sha256:2\n\n"


@pytest.mark.parametrize("state", ["terminated", "waiting", "running"])
@pytest.mark.parametrize(
    ("image", "message", "reason", "detail"),
    [
        (RUNTIME, LOG, "DigestMismatch", "DigestMismatch: model.joblib: must be sha256:1, got sha256:2"),
        (RUNTIME, "LoadFailed: no: such: file\n", "LoadFailed", "LoadFailed: no: such: file"),
        (RUNTIME, "2026-01-01 INFO Ready: x\n", "CrashLoopBackOff", "2026-01-01 INFO Ready: x"),
        ("vllm/vllm-openai", "x\nValueError: no GPU\n", "CrashLoopBackOff", "ValueError: no GPU"),
    ],
)
def test_reason_is_the_last_line_of_the_message_when_a_runtime_printed_it(
    state: str, image: str, message: str, reason: str, detail: str
) -> None:
    end = terminated(1, message=message)
    states: dict[str, Object] = {
        "terminated": pod(image=image, **end),
        "waiting": pod(image=image, waiting=BACK_OFF, last_state=end),
        "running": pod(image=image, running={}, last_state=end),
    }
    assert replicas.pod_problem(states[state]) == StatusReason(
        reason, f"container predictor ended with exit code 1: {detail}"
    )


def test_reason_of_a_runtime_is_read_when_its_image_is_of_another_registry() -> None:
    images = RuntimeImageSettings(prefix="registry.corp/slipway", tag="1.2.0")
    crashed = pod(image="registry.corp/slipway/sklearn:1.2.0", **terminated(1, message="LoadFailed: x"))
    assert replicas.pod_problem(crashed) != replicas.pod_problem(crashed, images)
    state = replicas.read(deployment(1, 0), [crashed], images)
    assert state.unready_reason.reason == "LoadFailed"


def test_reason_of_the_node_is_kept_when_the_message_also_has_the_log() -> None:
    end = terminated(137, "OOMKilled", message="the container went over its memory limit\nLoadFailed: x\n")
    assert replicas.pod_problem(pod(image=RUNTIME, **end)) == StatusReason(
        "OOMKilled", "container predictor ended with exit code 137: the container went over its memory limit"
    )


def test_a_node_without_image_volumes_is_named_when_its_runtime_cannot_mount_the_model() -> None:
    # The words of containerd 1.6; the ID changes with every attempt.
    message = (
        'failed to generate container "829dfab8" spec: failed to generate spec: failed to mkdir "": mkdir :'
        " no such file or directory"
    )
    waiting = pod(waiting={"reason": "CreateContainerError", "message": message})
    assert replicas.pod_problem({**waiting, "spec": {"nodeName": "node-1"}}) == StatusReason(
        "ImageVolumesUnsupported",
        "container predictor: the container runtime of node node-1 cannot mount the model, as it has no image"
        " volumes (containerd has them from 2.1 on)",
    )


@pytest.mark.parametrize(
    "healthy_pod",
    [
        pod(running={}),
        pod(waiting={"reason": "ContainerCreating"}),
        pod(running={}, last_state=terminated(), ready=True),
        pod(running={}, last_state=terminated(137, "ContainerStatusUnknown")),
        pod(running={}, last_state=terminated(0, "NodeShutdown")),
        {"metadata": {"name": "new"}},
        pod(**terminated()) | {"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_container_that_starts_serves_or_stops_has_no_problem(healthy_pod: Object) -> None:
    assert replicas.pod_problem(healthy_pod) is None


def copies(**state: Object) -> Object:
    """Return a Pod whose init container is in a state, and whose server waits."""
    init = {
        "name": "copy-model",
        "image": "registry.corp/slipway/transfer:1",
        "ready": False,
        "state": state,
    }
    waiting = pod(waiting={"reason": "PodInitializing"})
    return {**waiting, "status": {**waiting["status"], "initContainerStatuses": [init]}}


def test_a_revision_whose_model_is_being_copied_says_so() -> None:
    obstacle = problem(deployment(1, 0), copies(running={}))
    message = "revision r: 0 of 1 replicas ready (container copy-model: copies the model)"
    assert obstacle == StatusReason("ReplicasNotReady", message)
    late = problem(deployment(1, 0, Progressing=("False", "no progress")), copies(running={}))
    assert late == StatusReason("RevisionFailed", message)


def test_a_failed_replica_comes_before_one_whose_model_is_being_copied() -> None:
    crashed = pod("z", image=RUNTIME, **terminated(1, message="LoadFailed: x"))
    obstacle = problem(deployment(2, 0), copies(running={}), crashed)
    assert obstacle is not None
    assert obstacle.reason == "LoadFailed"


def test_a_failed_copy_has_the_reason_of_its_last_line() -> None:
    images = RuntimeImageSettings(prefix="registry.corp/slipway", tag="1")
    failed = copies(**terminated(1, message="copying\nUnauthorized: no login\n"))
    assert replicas.pod_problem(failed, images) == StatusReason(
        "Unauthorized", "container copy-model ended with exit code 1: Unauthorized: no login"
    )


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_finished_pod_is_no_problem_of_its_revision_when_a_new_one_starts(phase: str) -> None:
    evicted = pod("a", **terminated(137))
    evicted["status"]["phase"] = phase
    starting = pod("b", running={})
    state = replicas.read(deployment(1, 0), [evicted, starting])
    assert state.unready_reason == StatusReason("ReplicasNotReady")


def test_unschedulable_pod_has_the_reason_of_the_scheduler() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    unschedulable = {"metadata": {"name": "p"}, "status": {"conditions": [condition]}}
    assert replicas.pod_problem(unschedulable) == StatusReason("Unschedulable", "no room")


@pytest.mark.parametrize(
    ("desired", "ready", "all_ready", "fine"),
    [(3, 1, False, True), (3, 1, True, False), (3, 3, True, True), (0, 0, True, False), (0, 1, True, True)],
)
def test_one_ready_replica_suffices_unless_all_are_required(
    desired: int, ready: int, *, all_ready: bool, fine: bool
) -> None:
    rollout_problem = problem(deployment(desired, ready), all_ready=all_ready)
    assert (rollout_problem is None) == fine


def test_reason_comes_from_the_first_failed_pod_else_the_deployment() -> None:
    slow = deployment(2, 0)
    assert problem(slow, pod("a", running={})) == StatusReason(
        "ReplicasNotReady", "revision r: 0 of 2 replicas ready"
    )
    pod_failure = problem(slow, pod("a", running={}), pod("b", **terminated()))
    assert pod_failure == StatusReason(
        "CrashLoopBackOff",
        "revision r: 0 of 2 replicas ready (container predictor ended with exit code 3)",
    )
    refused = deployment(2, 0, ReplicaFailure=("True", "Pods are forbidden"), Progressing=("True", ""))
    assert problem(refused) == StatusReason(
        "ReplicaFailure", "revision r: 0 of 2 replicas ready (Pods are forbidden)"
    )
    assert problem(None) == StatusReason("ReplicasNotReady", "revision r: 0 of 0 replicas ready")


def test_refusal_by_pod_security_has_the_words_of_the_api_and_what_to_set() -> None:
    words = (
        'pods "r-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or'
        ' container "predictor" must set securityContext.runAsNonRoot=true)'
    )
    refused = problem(deployment(2, 0, ReplicaFailure=("True", words)))
    assert refused is not None
    assert refused.reason == "ReplicaFailure"
    assert refused.message == (
        f"revision r: 0 of 2 replicas ready ({words}; set these fields in the predictor's template:"
        " runAsNonRoot and seccompProfile in securityContext, the others in containers[].securityContext)"
    )


def test_revision_past_its_deadline_fails_with_the_message_of_its_pod() -> None:
    timed_out = deployment(1, 0, Progressing=("False", "timed out"))
    assert problem(timed_out) == StatusReason(
        "RevisionFailed", "revision r: 0 of 1 replicas ready (timed out)"
    )
    pod_failure = problem(timed_out, pod(**terminated()))
    assert pod_failure is not None
    assert (pod_failure.reason, "exit code 3" in pod_failure.message) == ("RevisionFailed", True)
