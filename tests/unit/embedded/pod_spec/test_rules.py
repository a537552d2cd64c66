import pytest

from serving.embedded.pod_spec import rules

IMAGE = "slipway.dev/runtimes/python"


def fields(container: dict, **spec: object) -> list[str]:
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": IMAGE, **container}], **spec},
    }
    causes = rules.refusals(pod, [IMAGE], mounts=True, protected=(), data="/data")
    return [cause.field for cause in causes]


def test_defaults_of_stored_pods_are_not_refused():
    defaults = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    assert fields(defaults) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("terminationMessagePath", "/etc/why"),
        ("terminationMessagePath", "/tmp/../etc/why"),
        ("terminationMessagePath", "/tmp/"),
        ("terminationMessagePolicy", "Log"),
        ("tty", True),
        ("stdin", True),
        ("restartPolicy", "Always"),
    ],
)
def test_unsupported_container_field_is_refused_by_its_path(field: str, value: object):
    assert fields({field: value}) == [f"spec.containers[0].{field}"]


def test_termination_message_of_a_log_or_of_a_private_file_is_not_refused():
    assert fields({"terminationMessagePath": "/tmp/why", "terminationMessagePolicy": "File"}) == []
    assert fields({"terminationMessagePolicy": "FallbackToLogsOnError"}) == []


def test_termination_message_below_tmp_is_refused_where_the_node_cannot_mount():
    container = {"name": "c", "image": IMAGE, "terminationMessagePath": "/tmp/why"}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    causes = rules.refusals(pod, [IMAGE], mounts=False)
    assert [cause.field for cause in causes] == ["spec.containers[0].terminationMessagePath"]


@pytest.mark.parametrize("mount_path", ["/tmp", "/tmp/", "//tmp", "/tmp/a", "/tmp/a/why"])
def test_termination_message_file_is_refused_when_a_volume_covers_it(mount_path: str):
    container = {
        "terminationMessagePath": "/tmp/a/why",
        "volumeMounts": [{"name": "v", "mountPath": mount_path}],
    }
    refused = fields(container, volumes=[{"name": "v", "emptyDir": {}}])
    assert "spec.containers[0].terminationMessagePath" in refused


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "nodeSelector", "affinity"])
def test_unsupported_pod_field_is_refused_by_its_path(field: str):
    assert fields({}, **{field: {"a": "b"}}) == [f"spec.{field}"]


def test_image_without_a_runtime_needs_a_command():
    assert fields({"image": "nginx"}) == ["spec.containers[0].image"]
    assert fields({"image": "nginx", "command": ["true"]}) == []
