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
        ("terminationMessagePath", "/tmp/why"),
        ("terminationMessagePolicy", "FallbackToLogsOnError"),
        ("tty", True),
        ("stdin", True),
        ("restartPolicy", "Always"),
    ],
)
def test_unsupported_container_field_is_refused_by_its_path(field: str, value: object):
    assert fields({field: value}) == [f"spec.containers[0].{field}"]


@pytest.mark.parametrize("field", ["hostNetwork", "hostPID", "nodeSelector", "affinity"])
def test_unsupported_pod_field_is_refused_by_its_path(field: str):
    assert fields({}, **{field: {"a": "b"}}) == [f"spec.{field}"]


def test_image_without_a_runtime_needs_a_command():
    assert fields({"image": "nginx"}) == ["spec.containers[0].image"]
    assert fields({"image": "nginx", "command": ["true"]}) == []
