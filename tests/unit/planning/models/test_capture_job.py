from typing import Any

import pytest

from serving import errors
from serving.objects import Object
from serving.planning.inference.pod_defaults import RESTRICTED
from serving.planning.models import capture_job, job_output
from serving.resources import names
from serving.resources.model import ModelSpec
from serving.settings import RuntimeImageSettings
from tests.objects.finished_jobs import CLAIM, HOST_PATH, NFS, pod_of, training

IMAGES = RuntimeImageSettings("registry.corp/slipway", "1.2.0", "Always", "images")
REPOSITORY = "registry.corp/models/digits"
VERSION: Object = {
    "metadata": {"name": "digits-v1", "namespace": "default", "uid": "0a1b2c3d-4e5f"},
    "spec": {"modelName": "digits", "framework": "sklearn"},
    "status": {"attempts": 2},
}


def rendered(
    volume: Object = CLAIM, *, secret: str | None = "login", mount: Object | None = None, **pod: Any
) -> Object:
    """Return the capture Job of a training Job, by further fields of its mount and its Pod."""
    job = training(volume, mount=mount, pod=pod)
    registry = {"repository": REPOSITORY, **({"secretName": secret} if secret else {})}
    policy = ModelSpec.model_validate({"registry": registry, "compression": "zstd"})
    output = job_output.of_job(job, [pod_of(job)])
    return capture_job.render(capture_job.Capture(VERSION, job, output, policy), IMAGES)


def pod(**options: Any) -> Object:
    spec: Object = rendered(**options)["spec"]["template"]["spec"]
    return spec


def container(**options: Any) -> Object:
    (only,) = pod(**options)["containers"]
    return dict(only)


def environment(**options: Any) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(**options)["env"]}


def test_capture_job_is_owned_by_its_version_and_named_by_its_uid() -> None:
    job = rendered()
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ModelVersion", "digits-v1", "0a1b2c3d-4e5f")
    assert "blockOwnerDeletion" not in owner  # it needs a right to the version's finalizers
    assert job["metadata"]["name"] == "capture-digits-v1-0a1b2"
    assert job["metadata"]["annotations"] == {names.ATTEMPT_ANNOTATION: "2"}
    long = {"metadata": {"name": f"{'v' * 48}.{'w' * 14}", "uid": "1-2-3-4-5"}}
    assert capture_job.name(long) == f"capture-{'v' * 48}-12345"
    assert len(capture_job.name({"metadata": {"name": "v" * 63, "uid": "1-2-3-4-5"}})) == 63


@pytest.mark.parametrize("volume", [CLAIM, NFS, HOST_PATH])
def test_the_pod_mounts_the_same_volume_read_only_at_the_same_sub_path(volume: Object) -> None:
    spec = pod(volume=volume, mount={"subPath": "a/b"})
    assert spec["volumes"][0] == {"name": "output", **volume}
    mount = {"name": "output", "mountPath": "/mnt/output", "readOnly": True, "subPath": "a/b"}
    assert spec["containers"][0]["volumeMounts"][0] == mount
    assert environment(volume=volume)[names.OUTPUT_DIR_ENV] == "/mnt/output/model"
    assert environment(volume=volume)[names.OUTPUT_VOLUME_ENV] == "/mnt/output"


def test_the_program_gets_the_registry_of_the_model_and_the_origin_of_the_output() -> None:
    variables = environment()
    assert variables[names.CAPTURE_REPOSITORY_ENV] == REPOSITORY
    assert variables[names.CAPTURE_COMPRESSION_ENV] == "zstd"
    assert variables[names.CAPTURE_FRAMEWORK_ENV] == "sklearn"
    assert (variables[names.JOB_NAME_ENV], variables[names.JOB_UID_ENV]) == ("train", "j1")
    assert (variables[names.JOB_API_VERSION_ENV], variables[names.JOB_KIND_ENV]) == ("batch/v1", "Job")
    assert container()["image"] == "registry.corp/slipway/transfer:1.2.0"
    assert container()["command"] == ["python3", "-m", "serving.images.capturing.process"]


def test_login_is_an_optional_file_only_when_the_model_names_a_secret() -> None:
    assert environment()[names.PULL_SECRETS_ENV] == "login"
    (secret,) = pod()["volumes"][2]["projected"]["sources"]
    assert secret["secret"]["name"] == "login"
    assert secret["secret"]["optional"]
    assert names.PULL_SECRETS_ENV not in environment(secret=None)
    assert len(pod(secret=None)["volumes"]) == len(container(secret=None)["volumeMounts"]) == 2


def test_the_container_has_no_rights_and_no_token() -> None:
    spec = pod()
    security = container()["securityContext"]
    assert RESTRICTED.items() <= security.items()
    assert security["readOnlyRootFilesystem"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["imagePullSecrets"] == [{"name": "images"}]


@pytest.mark.parametrize(
    ("shared", "own", "user", "group"),
    [
        ({}, {}, 65532, 65532),
        ({"runAsUser": 1000}, {}, 1000, 65532),
        ({"runAsUser": 1000, "runAsGroup": 100}, {"runAsUser": 1001}, 1001, 100),
        ({"runAsUser": 1000}, {"runAsUser": 0, "runAsGroup": 0}, 65532, 0),
    ],
)
def test_the_program_reads_as_the_user_that_wrote_unless_that_is_root(
    shared: Object, own: Object, user: int, group: int
) -> None:
    job = training(CLAIM, pod={"securityContext": shared})
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"] = own
    policy = ModelSpec.model_validate({"registry": {"repository": REPOSITORY}})
    capture = capture_job.Capture(VERSION, job, job_output.of_job(job, [pod_of(job)]), policy)
    (only,) = capture_job.render(capture, IMAGES)["spec"]["template"]["spec"]["containers"]
    assert only["securityContext"]["runAsUser"] == user
    assert only["securityContext"]["runAsGroup"] == group
    assert only["securityContext"]["runAsNonRoot"] is True


def test_pod_keeps_the_groups_of_the_training_and_changes_volume_owners_only_on_a_mismatch() -> None:
    shared = {"fsGroup": 100, "supplementalGroups": [7], "runAsUser": 1, "sysctls": [{"name": "x"}]}
    assert pod(securityContext=shared)["securityContext"] == {
        "fsGroup": 100,
        "supplementalGroups": [7],
        "fsGroupChangePolicy": "OnRootMismatch",
    }
    assert "securityContext" not in pod()
    assert "securityContext" not in pod(securityContext={"fsGroup": None})


def test_pod_has_the_group_of_root_when_the_training_names_it() -> None:
    assert pod(securityContext={"fsGroup": 0})["securityContext"]["fsGroup"] == 0


def test_the_pod_runs_on_the_node_of_a_host_path_and_near_other_volumes() -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    placed = {"nodeSelector": {"zone": "a"}, "tolerations": tolerations}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    local, remote = pod(volume=HOST_PATH, **placed), pod(volume=CLAIM, **placed)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    assert local["affinity"]["nodeAffinity"] == {required: {"nodeSelectorTerms": terms}}
    assert "nodeSelector" not in local
    preferred = remote["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [entry["preference"] for entry in preferred] == terms
    assert remote["nodeSelector"] == {"zone": "a"}
    assert local["tolerations"] == remote["tolerations"] == tolerations


def test_a_refused_output_fails_the_job_at_once_and_a_drain_does_not_count() -> None:
    spec = rendered()["spec"]
    fails, ignored = spec["podFailurePolicy"]["rules"]
    assert (fails["action"], fails["onExitCodes"]["values"]) == ("FailJob", [capture_job.REFUSED])
    assert fails["onExitCodes"]["containerName"] == container()["name"]
    assert ignored["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "podFailurePolicy needs it"


def test_a_sub_path_of_the_pods_variables_is_refused() -> None:
    with pytest.raises(errors.Permanent, match="subPathExpr") as refused:
        rendered(mount={"subPathExpr": "$(POD_NAME)"})
    assert refused.value.reason == "OutputNotOnVolume"
