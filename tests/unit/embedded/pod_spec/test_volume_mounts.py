import pytest

from serving.embedded.pod_spec import rules
from serving.embedded.pod_spec.volume_mounts import digest_of, keyed_files, rewrite

IMAGES = ("slipway.dev/runtimes/python",)


def refused(spec: dict, *, mounts: bool = True) -> list[str]:
    container = {"name": "c", "image": IMAGES[0], **spec.pop("container", {})}
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [container], **spec}}
    causes = rules.refusals(pod, IMAGES, mounts=mounts, protected=("/opt/python",), data="/var/slipway")
    return [cause.field for cause in causes]


def test_ordinary_pod_is_not_refused():
    assert refused({"securityContext": {"runAsNonRoot": True}, "restartPolicy": "Never"}) == []


def test_pod_that_keeps_the_restricted_profile_is_not_refused():
    default = {"seccompProfile": {"type": "RuntimeDefault"}}
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **default}
    assert refused({"securityContext": {"runAsNonRoot": True, **default}}) == []
    assert refused({"container": {"securityContext": {"runAsNonRoot": True, **context}}}) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"hostNetwork": True}, "spec.hostNetwork"),
        ({"securityContext": {"runAsUser": 1}}, "spec.securityContext.runAsUser"),
        ({"securityContext": {"runAsUser": 0}}, "spec.securityContext.runAsUser"),
        (
            {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
            "spec.securityContext.seccompProfile",
        ),
        (
            {"container": {"securityContext": {"seccompProfile": {"type": "Localhost"}}}},
            "spec.containers[0].securityContext.seccompProfile",
        ),
        (
            {"container": {"securityContext": {"privileged": True}}},
            "spec.containers[0].securityContext.privileged",
        ),
        ({"container": {"image": "nginx"}}, "spec.containers[0].image"),
        (
            {"container": {"readinessProbe": {"grpc": {"port": 1, "mode": "TLS"}}}},
            "spec.containers[0].readinessProbe.grpc.mode",
        ),
        ({"container": {"resources": {"limits": {"cpu": "x"}}}}, "spec.containers[0].resources.limits"),
        (
            {"container": {"volumeMounts": [{"name": "no", "mountPath": "/a"}]}},
            "spec.containers[0].volumeMounts[0].name",
        ),
        ({"volumes": [{"name": "v", "nfs": {}}]}, "spec.volumes[0].nfs"),
        (
            {"volumes": [{"name": "v", "hostPath": {"path": "/var/slipway/tls"}}]},
            "spec.volumes[0].hostPath.path",
        ),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/var"}}]}, "spec.volumes[0].hostPath.path"),
        (
            {"volumes": [{"name": "v", "hostPath": {"path": "//var/slipway/tls"}}]},
            "spec.volumes[0].hostPath.path",
        ),
        ({"volumes": [{"name": "v", "image": {"reference": "nginx"}}]}, "spec.volumes[0].image.reference"),
    ],
)
def test_unsupported_volume_is_refused_by_its_path(spec, field):
    assert refused(spec) == [field]


@pytest.mark.parametrize("kind", ["secret", "configMap"])
@pytest.mark.parametrize("path", ["../../etc/passwd", "a/../../b", "..", "..a", "/etc/passwd", ""])
def test_path_of_an_item_is_refused_when_it_may_leave_its_volume(kind: str, path: str) -> None:
    items = [{"key": "k", "path": "keys/k"}, {"key": "k", "path": path}]
    source = {"secretName" if kind == "secret" else "name": "a", "items": items}
    assert refused({"volumes": [{"name": "v", kind: source}]}) == [f"spec.volumes[0].{kind}.items[1].path"]


@pytest.mark.parametrize(
    "target",
    ["/", "/usr", "/proc/1", "/dev/x", "/opt", "/opt/python", "rel", "//", "//etc", "//proc/1", "//opt"],
)
def test_mount_over_the_interpreter_is_refused(target):
    spec = {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "container": {"volumeMounts": [{"name": "v", "mountPath": target}]},
    }
    assert refused(spec) == ["spec.containers[0].volumeMounts[0].mountPath"]


def test_mount_is_refused_without_root_unless_a_variable_names_it():
    def spec(value: str) -> dict:
        return {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "container": {
                "volumeMounts": [{"name": "v", "mountPath": "/mnt/model"}],
                "env": [{"name": "D", "value": value}],
            },
        }

    assert refused(spec("/mnt/model/models"), mounts=False) == []
    assert refused(spec("/mnt/models"), mounts=False) == ["spec.containers[0].volumeMounts[0].mountPath"]


def test_environment_paths_are_rewritten_without_root():
    env = {"D": "/mnt/model/models", "E": "/mnt/model", "F": "/mnt/modelling", "G": "//mnt/model/models"}
    for path in ("/mnt/model", "//mnt/model"):
        container = {"volumeMounts": [{"name": "v", "mountPath": path}]}
        assert rewrite(env, container, {"v": "/data/x"}) == {
            "D": "/data/x/models",
            "E": "/data/x",
            "F": "/mnt/modelling",
            "G": "/data/x/models",
        }


def test_only_references_by_digest_are_image_volumes():
    digest = "sha256:" + "a" * 64
    assert digest_of(f"slipway.local/ns/model@{digest}") == digest
    assert digest_of(f"registry.example:5000/models/digits@{digest}") == digest
    assert digest_of(f"[::1]:5000/models/digits:v1@{digest}") == digest
    for reference in (f"{digest}", f"digits@{digest}", "registry.example/digits:v1", f"a/b@{digest}0"):
        assert digest_of(reference) is None
    assert digest_of("slipway.local/ns/model@sha256:../../etc") is None


def test_items_choose_keys_and_paths():
    assert keyed_files({"k": b"v"}, {"items": [{"key": "k", "path": "a/b"}]}, mode=0o400) == (
        ("a/b", b"v", 0o400),
    )


@pytest.mark.parametrize(("own", "mode"), [({"mode": 0o555}, 0o555), ({"mode": 0}, 0), ({}, 0o400)])
def test_file_has_the_mode_of_its_item_when_it_has_one(own: dict[str, int], mode: int) -> None:
    (file,) = keyed_files({"k": b"v"}, {"items": [{"key": "k", "path": "a", **own}]}, mode=0o400)
    assert file.mode == mode


def test_all_keys_are_files_when_items_is_empty() -> None:
    assert keyed_files({"k": b"v"}, {"items": []}, mode=0o400) == (("k", b"v", 0o400),)


def test_key_that_is_missing_has_no_file_when_its_source_is_optional() -> None:
    source = {"items": [{"key": "absent", "path": "x"}, {"key": "k", "path": "y"}]}
    assert keyed_files({"k": b"v"}, {**source, "optional": True}, mode=0o400) == (("y", b"v", 0o400),)
    with pytest.raises(KeyError, match="absent"):
        keyed_files({"k": b"v"}, source, mode=0o400)


def test_local_image_of_another_namespace_is_refused_where_the_namespace_is_known() -> None:
    digest = "sha256:" + "a" * 64
    container = {"name": "c", "image": IMAGES[0]}
    for reference, namespace, is_refused in (
        (f"slipway.local/a/m@{digest}", "a", False),
        (f"slipway.local/b/m@{digest}", "a", True),
        (f"slipway.local/ab/m@{digest}", "a", True),
        (f"slipway.local/b/m@{digest}", "", False),
        (f"registry.example/b/m@{digest}", "a", False),
    ):
        volumes = [{"name": "v", "image": {"reference": reference}}]
        pod = {
            "metadata": {"name": "p", "uid": "u", "namespace": namespace},
            "spec": {"containers": [container], "volumes": volumes},
        }
        causes = rules.refusals(pod, IMAGES)
        assert [cause.field for cause in causes] == ["spec.volumes[0].image.reference"] * is_refused
        assert all(f"'{reference}' must begin with slipway.local/a/" in cause.message for cause in causes)
