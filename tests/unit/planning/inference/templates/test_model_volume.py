import json
from typing import Any

from serving.objects import Object
from serving.planning.inference import model_volume, revision
from serving.planning.models.volume import VolumeSource
from serving.resources import names
from serving.resources.formats import file_list
from serving.resources.inference import Predictor
from serving.settings import RuntimeImageSettings
from tests.fakes.surroundings import ready_version

IMAGES = RuntimeImageSettings("registry.corp/slipway", "1.2.0", "Always", "login")
FILES = [{"path": f"part-{n}", "digest": f"sha256:{n:064}", "size": 1_000_000} for n in range(3)]


def rendered(
    source: VolumeSource = "copy",
    framework: str = "sklearn",
    images: RuntimeImageSettings = IMAGES,
    size: int = 3_000_000,
    **fields: object,
) -> revision.Revision:
    predictor = Predictor.model_validate({"name": "stable", "modelVersion": "v1", **fields})
    version = ready_version("v1")
    version["status"] |= {"files": FILES, "size": size}
    return revision.render("digits", framework, predictor, version, images=images, volume=source)


def spec(**options: Any) -> Object:
    pod: Object = rendered(**options).template["spec"]
    return pod


def copier(**options: Any) -> Object:
    (container,) = spec(**options)["initContainers"]
    return dict(container)


def environment(container: Object) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_the_server_of_a_copy_and_of_an_image_volume_is_the_same() -> None:
    for framework in ("sklearn", "custom"):
        template = {"containers": [{"name": "predictor", "image": "mine"}]}
        own = {"template": template} if framework == "custom" else {}
        by_source = [spec(source=source, framework=framework, **own) for source in ("image", "copy")]
        assert by_source[0]["containers"] == by_source[1]["containers"]
        assert all(each["volumes"][0]["name"] == "model" for each in by_source)
        assert "initContainers" not in by_source[0]
        assert rendered("image", framework, **own).name != rendered("copy", framework, **own).name


def test_the_copier_gets_the_image_by_digest_and_the_digest_of_the_list() -> None:
    container = copier()
    assert environment(container) == {
        names.MODEL_IMAGE_ENV: ready_version("v1")["status"]["image"],
        names.MODEL_FILES_DIGEST_ENV: file_list.digest(
            (file["path"], file["digest"], file["size"])
            for file in FILES  # type: ignore[misc]
        ),
        names.MODEL_VOLUME_ENV: names.MODEL_MOUNT,
        names.PULL_SECRETS_ENV: "login",
        names.PULL_SECRETS_DIR_ENV: "/run/slipway/pull-secrets",
    }
    assert (
        environment(container)[names.MODEL_FILES_DIGEST_ENV]
        == environment(spec()["containers"][0])[names.MODEL_FILES_DIGEST_ENV]
    )
    assert {"name": "model", "mountPath": names.MODEL_MOUNT} in container["volumeMounts"]


def test_the_image_of_the_copier_is_that_of_the_settings() -> None:
    container = copier()
    assert container["image"] == "registry.corp/slipway/transfer:1.2.0"
    assert container["imagePullPolicy"] == "Always"
    other = RuntimeImageSettings("registry.corp/slipway", copier="small")
    assert copier(images=other)["image"] == "registry.corp/slipway/small"
    assert "imagePullPolicy" not in copier(images=other)


def test_the_pull_secret_of_the_copiers_image_is_in_pods_of_custom_servers_too() -> None:
    own = {"template": {"containers": [{"name": "predictor", "image": "mine"}]}}
    assert spec(framework="custom", **own)["imagePullSecrets"] == [{"name": "login"}]
    assert "imagePullSecrets" not in spec(source="image", framework="custom", **own)


def test_every_pull_secret_of_the_pod_is_a_file_of_the_copier_once() -> None:
    template = {"imagePullSecrets": [{"name": "own"}, {"name": "login"}, {"name": "own"}]}
    pod = spec(template=template)
    (volume,) = (each for each in pod["volumes"] if each["name"] == model_volume.SECRETS_VOLUME)
    sources = [source["secret"] for source in volume["projected"]["sources"]]
    assert [source["name"] for source in sources] == ["own", "login"]
    assert [source["items"] for source in sources] == [
        [{"key": ".dockerconfigjson", "path": name}] for name in ("own", "login")
    ]
    assert all(source["optional"] for source in sources)
    (container,) = pod["initContainers"]
    assert environment(container)[names.PULL_SECRETS_ENV] == "own,login"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


def test_a_pod_without_pull_secrets_has_no_volume_of_them() -> None:
    images = RuntimeImageSettings("registry.corp/slipway", "1.2.0")
    assert model_volume.SECRETS_VOLUME not in json.dumps(spec(images=images))
    assert names.PULL_SECRETS_ENV not in environment(copier(images=images))


def test_only_the_copier_has_the_pull_secrets() -> None:
    (server,) = spec()["containers"]
    assert [mount["name"] for mount in server["volumeMounts"]] == ["model"]
    assert server["volumeMounts"][0]["readOnly"]


def test_the_copier_has_no_rights() -> None:
    container = copier()
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert context["runAsNonRoot"]
    assert context["runAsUser"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    covered = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    token = covered["/var/run/secrets/kubernetes.io/serviceaccount"]
    assert {"name": token, "emptyDir": {}} in spec()["volumes"]


def test_the_copier_has_the_processor_and_memory_of_the_server() -> None:
    assert "resources" not in copier()
    amounts = {"cpu": "500m", "memory": "1Gi"}
    assert copier(resources=amounts)["resources"] == {"requests": amounts, "limits": amounts}
    gpu = {"gpu": {"mechanism": "mps", "memory": "4Gi"}}
    assert copier(framework="pytorch", resources={**amounts, **gpu})["resources"] == {
        "requests": amounts,
        "limits": amounts,
    }
    own = {"limits": {"memory": "2Gi", "nvidia.com/gpu": "1"}}
    container = copier(template={"containers": [{"name": "predictor", "resources": own}]})
    assert container["resources"] == {"limits": {"memory": "2Gi"}}


def test_the_copier_has_enough_memory_beside_a_small_server() -> None:
    small = {"cpu": "100m", "memory": "64Mi"}
    enough = {"cpu": "100m", "memory": "128Mi"}
    assert copier(resources=small)["resources"] == {"requests": enough, "limits": enough}


def test_a_memory_that_is_no_quantity_is_left_to_the_api_to_refuse() -> None:
    own = {"limits": {"memory": "much"}}
    container = copier(template={"containers": [{"name": "predictor", "resources": own}]})
    assert container["resources"] == own


def test_the_volume_has_room_for_the_files_alone() -> None:
    (volume,) = (each for each in spec(size=3_000_000)["volumes"] if each["name"] == "model")
    assert volume["emptyDir"] == {"sizeLimit": "19Mi"}
    (unknown,) = (each for each in spec(size=0)["volumes"] if each["name"] == "model")
    assert unknown["emptyDir"] == {}
