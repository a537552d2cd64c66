"""The DaemonSets that bring the images of predictors with `prefetch` to the nodes that may run them."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.apiserver.schema import pruning, schemas, validation
from serving.objects import Object
from serving.planning.inference import planner, prefetch, revision, route
from serving.planning.inference.plan import Ensure
from serving.planning.models.volume import VolumeChoice
from serving.resources import kinds
from serving.resources.inference import Predictor
from serving.resources.kubernetes import conditions
from serving.settings import RuntimeImageSettings
from tests.fakes.inference_world import NOW, InferenceWorld
from tests.fakes.surroundings import predictor, ready_version

IMAGES = RuntimeImageSettings("registry.example.com/slipway", "0.1.0", waiter="registry.example.com/pause:1")
SERVER = "registry.example.com/slipway/sklearn:0.1.0"
NODE_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    }
}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "models"}


def replica(framework: str = "sklearn", **fields: Any) -> Object:
    """Return the spec of a predictor's Pod."""
    arm = Predictor.model_validate({"name": "a", "modelVersion": "v1", **fields})
    rendered = revision.render("digits", framework, arm, ready_version("v1"), images=IMAGES)
    spec: Object = rendered.template["spec"]
    return spec


def waiting(framework: str = "sklearn", images: RuntimeImageSettings = IMAGES, **fields: Any) -> Object:
    return prefetch.pod_spec(replica(framework, **fields), images)


def references(pod: Object) -> list[str]:
    return [volume["image"]["reference"] for volume in pod["volumes"]]


def test_pod_mounts_the_images_of_model_and_server_and_only_waits() -> None:
    pod = waiting()
    assert references(pod) == [ready_version("v1")["status"]["image"], SERVER]
    (container,) = pod["containers"]
    assert container["image"] == IMAGES.waiter
    assert not {"command", "args", "env", "ports", "readinessProbe"} & container.keys()
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"model": "/mnt/model", "image-0": "/mnt/image-0"}


def test_pod_has_the_images_of_all_containers_once_when_the_template_has_several() -> None:
    own = {"name": "predictor", "image": "example.com/server:3", "imagePullPolicy": "Always"}
    beside = {"name": "beside", "image": "example.com/proxy:1"}
    same = {"name": "same", "image": "example.com/server:3"}
    local = {"name": "local", "image": "example.com/preloaded:1", "imagePullPolicy": "Never"}
    pod = waiting("custom", template={"containers": [own, beside, same, local]})
    images = [volume["image"] for volume in pod["volumes"][1:]]
    assert images == [
        {"reference": "example.com/server:3", "pullPolicy": "Always"},
        {"reference": "example.com/proxy:1"},
    ]


def test_pod_has_no_rights_and_the_fields_of_the_restricted_profile() -> None:
    pod = waiting(template={"serviceAccountName": "puller"})
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == "puller", "its pull Secrets count"
    context = pod["containers"][0]["securityContext"]
    assert context["runAsNonRoot"]
    assert context["readOnlyRootFilesystem"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_pod_is_placed_as_the_predictor_by_nodes_and_not_by_other_pods() -> None:
    placement = {
        "nodeSelector": {"pool": "models"},
        "affinity": {"nodeAffinity": NODE_AFFINITY, "podAntiAffinity": {"x": []}},
        "tolerations": [TOLERATION],
        "topologySpreadConstraints": [{"topologyKey": "zone"}],
        "priorityClassName": "high",
        "schedulerName": "volcano",
        "runtimeClassName": "nvidia",
    }
    pod = waiting(template=placement)
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "models"}
    assert pod["affinity"] == {"nodeAffinity": NODE_AFFINITY}
    assert pod["tolerations"] == [TOLERATION]
    assert pod["runtimeClassName"] == "nvidia"
    assert not {"topologySpreadConstraints", "priorityClassName", "schedulerName"} & pod.keys()


def test_pod_has_fields_of_kubernetes_with_their_types() -> None:
    template = {
        "nodeSelector": {"pool": "models"},
        "affinity": {"nodeAffinity": NODE_AFFINITY},
        "tolerations": [TOLERATION],
        "imagePullSecrets": [{"name": "login"}],
    }
    pod = waiting("pytorch", resources={"cpu": "1", "gpu": {"memory": "4Gi"}}, template=template)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits"}, "spec": pod}
    schema = schemas.of_builtin(kinds.POD)
    assert not validation.check(body, schema)
    assert pruning.prune(copy.deepcopy(body), schema) == body


GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize("own", [[], [TOLERATION], [GPU]])
def test_pod_requests_no_gpu_and_tolerates_the_taints_of_gpu_nodes(own: list[Object]) -> None:
    pod = waiting("pytorch", resources={"gpu": {"memory": "4Gi"}}, template={"tolerations": own})
    assert (
        "nvidia.com/gpu"
        in replica("pytorch", resources={"gpu": {"memory": "4Gi"}})["containers"][0]["resources"]["limits"]
    )
    assert GPU in pod["tolerations"]
    assert all(pod["tolerations"].count(toleration) == 1 for toleration in [*own, GPU])
    assert pod["containers"][0]["resources"].keys() == {"requests", "limits"}
    assert all(amounts.keys() == {"cpu", "memory"} for amounts in pod["containers"][0]["resources"].values())
    assert "resourceClaims" not in pod


def test_pod_has_the_pull_secrets_of_the_predictor_and_of_the_waiting_image() -> None:
    private = RuntimeImageSettings(IMAGES.prefix, IMAGES.tag, pull_secret="login")
    pod = waiting(
        "custom",
        private,
        template={
            "imagePullSecrets": [{"name": "models"}],
            "containers": [{"name": "predictor", "image": "example.com/server:3"}],
        },
    )
    assert pod["imagePullSecrets"] == [{"name": "models"}, {"name": "login"}]
    both = waiting("sklearn", private, template={"imagePullSecrets": [{"name": "login"}]})
    assert both["imagePullSecrets"] == [{"name": "login"}]


_WORDS = st.sampled_from(["a", "b", "c"])


@given(
    images=st.lists(_WORDS, min_size=1, max_size=4),
    policies=st.lists(st.sampled_from(["", "Always", "IfNotPresent"]), min_size=4, max_size=4),
    tolerations=st.lists(st.fixed_dictionaries({"key": _WORDS}), max_size=3),
)
def test_every_image_is_mounted_once_under_a_name_and_path_of_its_own(
    images: list[str], policies: list[str], tolerations: list[Object]
) -> None:
    containers = [
        {"name": f"c{i}", "image": image, "imagePullPolicy": policy}
        for i, (image, policy) in enumerate(zip(images, policies, strict=False))
    ]
    model = {"name": "model", "image": {"reference": "m@sha256:0"}}
    pod = prefetch.pod_spec(
        {"containers": containers, "volumes": [model], "tolerations": tolerations}, IMAGES
    )
    assert references(pod) == ["m@sha256:0", *dict.fromkeys(images)]
    mounts = pod["containers"][0]["volumeMounts"]
    assert [mount["name"] for mount in mounts] == [volume["name"] for volume in pod["volumes"]]
    assert len({mount["mountPath"] for mount in mounts}) == len(mounts)


def arm(version: str = "v1", **fields: Any) -> Object:
    return predictor("stable", version, **{"prefetch": True, **fields})


def settled(*predictors: Object) -> InferenceWorld:
    world = InferenceWorld(*predictors)
    world.settle()
    return world


def report(world: InferenceWorld, nodes: int, ready: int) -> None:
    """Report the nodes of every DaemonSet as its controller does."""
    for daemon_set in world.daemon_sets.values():
        daemon_set["status"] = {
            "observedGeneration": daemon_set["metadata"]["generation"],
            "desiredNumberScheduled": nodes,
            "updatedNumberScheduled": nodes,
            "numberReady": ready,
        }


def prefetched(world: InferenceWorld) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    prefetched = conditions.find(world.inference["status"]["conditions"], "Prefetched") or {}
    return prefetched.get("status", ""), prefetched.get("reason", ""), prefetched.get("message", "")


def counts(world: InferenceWorld) -> Any:
    return world.inference["status"]["predictors"][0].get("prefetch")


def test_predictor_has_a_daemon_set_of_its_revision_only_when_it_asks_for_one() -> None:
    world = settled(arm(), predictor("plain", "v2"))
    (name,) = world.daemon_sets
    assert name == world.inference["status"]["predictors"][0]["revision"]
    stored = world.daemon_sets[name]
    labels = stored["spec"]["template"]["metadata"]["labels"]
    assert stored["spec"]["selector"]["matchLabels"] == labels == {"slipway.dev/prefetch": name}
    (owner,) = stored["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Inference", "digits", True)
    strategy = stored["spec"]["updateStrategy"]
    assert strategy["rollingUpdate"] == {"maxUnavailable": "100%"}, "a node that is down holds nothing up"


def test_pods_of_the_daemon_set_are_selected_by_nothing_that_selects_replicas() -> None:
    world = settled(arm(autoScale={"minReplicas": 2, "maxReplicas": 2}))
    (stored,) = world.daemon_sets.values()
    labels = stored["spec"]["template"]["metadata"]["labels"].items()
    selectors = [service["spec"]["selector"] for service in world.children["Service"].values()]
    selectors += [b["spec"]["selector"]["matchLabels"] for b in world.budgets.values()]
    selectors += [d["spec"]["selector"]["matchLabels"] for d in world.deployments.values()]
    assert len(selectors) == 3
    assert not [selector for selector in selectors if selector.items() <= labels]


def test_daemon_set_is_written_after_everything_that_serves() -> None:
    world = InferenceWorld(arm())
    written = [action.kind for action in planner.plan(world.now(), NOW).actions if isinstance(action, Ensure)]
    assert written[-1] is kinds.DAEMON_SET
    assert {kinds.DEPLOYMENT, kinds.SERVICE, kinds.AUTOSCALER, kinds.ROUTE} <= set(written[:-1])


def test_revision_that_serves_keeps_its_daemon_set_until_the_next_one_is_proven() -> None:
    world = settled(arm("v1"))
    (before,) = world.daemon_sets
    world.broken.add("v2")
    world.edit(arm("v2"))
    world.settle()
    candidate = world.inference["status"]["predictors"][0]["candidateRevision"]
    assert world.daemon_sets.keys() == {before, candidate}
    world.broken.clear()
    world.settle()
    assert world.daemon_sets.keys() == {candidate}


def test_daemon_set_is_kept_while_the_route_has_no_room_for_its_revision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled(arm("v1"))
    monkeypatch.setattr(route, "MAX_BACKENDS", 1)
    world.edit(arm("v2"))
    world.settle()
    assert len(world.daemon_sets) == 2


def test_candidate_is_proven_without_waiting_for_its_daemon_set() -> None:
    world = settled(arm("v1"))
    world.edit(arm("v2"))
    world.settle()
    entry = world.inference["status"]["predictors"][0]
    assert (entry["modelVersion"], entry["reason"]) == ("v2", "Ready")
    assert entry["revision"] in world.daemon_sets
    assert prefetched(world)[:2] == ("False", "Prefetching")


def test_daemon_sets_are_removed_when_the_predictor_no_longer_asks_for_them() -> None:
    world = settled(arm("v1"))
    revision_before = world.inference["status"]["predictors"][0]["revision"]
    world.edit(arm("v1", prefetch=False))
    world.plan()
    assert not world.daemon_sets
    assert prefetched(world) == ("", "", "")
    assert counts(world) is None
    assert world.inference["status"]["predictors"][0]["revision"] == revision_before, "no replica restarts"


def test_daemon_set_of_a_removed_arm_is_kept_while_the_arm_gets_traffic() -> None:
    world = settled(arm("v1"))
    before = set(world.daemon_sets)
    world.unready.add("v2")
    world.edit(predictor("other", "v2"))
    world.settle()
    assert set(world.daemon_sets) == before
    world.unready.clear()
    world.settle()
    assert not world.daemon_sets


def test_daemon_sets_are_deleted_with_their_inference() -> None:
    world = settled(arm())
    world.inference["metadata"]["deletionTimestamp"] = NOW
    world.plan()
    world.served = {}
    world.plan()
    assert not world.daemon_sets


def test_daemon_set_of_a_blocked_version_is_removed_so_that_its_image_may_leave_the_nodes() -> None:
    world = settled(arm())
    world.blocked.add("v1")
    world.settle()
    assert not world.daemon_sets
    assert prefetched(world)[:2] == ("False", "ModelVersionBlocked")


def test_status_has_the_nodes_and_those_with_the_images() -> None:
    world = settled(arm())
    (name,) = world.daemon_sets
    assert counts(world) is None
    assert prefetched(world) == (
        "False",
        "Prefetching",
        f"predictor stable: revision {name}: its DaemonSet has reported no nodes yet",
    )
    report(world, nodes=3, ready=2)
    world.plan()
    assert counts(world) == {"nodes": 3, "readyNodes": 2}
    assert prefetched(world) == (
        "False",
        "Prefetching",
        f"predictor stable: revision {name}: 2 of 3 nodes have its images",
    )
    report(world, nodes=3, ready=3)
    world.plan()
    assert counts(world) == {"nodes": 3, "readyNodes": 3}
    assert prefetched(world) == ("True", "AllNodes", "")
    report(world, nodes=4, ready=3)
    world.plan()
    assert prefetched(world)[:2] == ("False", "Prefetching"), "a node has joined"


def test_nodes_of_an_older_template_do_not_count() -> None:
    world = settled(arm())
    report(world, nodes=3, ready=3)
    (stored,) = world.daemon_sets.values()
    stored["status"]["updatedNumberScheduled"] = 1
    world.plan()
    assert counts(world) == {"nodes": 3, "readyNodes": 1}
    stored["metadata"]["generation"] += 1
    world.plan()
    assert counts(world) is None


def test_ready_does_not_depend_on_the_nodes_and_their_reports_may_wait() -> None:
    world = settled(arm())
    for ready in (0, 1, 2):
        report(world, nodes=2, ready=ready)
        planned = planner.plan(world.now(), NOW)
        assert planned.status_may_wait
        assert not planned.events
        world.plan()
        assert conditions.is_true(world.inference, "Ready")


def test_progress_of_a_revision_may_wait_while_nodes_lack_its_images() -> None:
    world = InferenceWorld(arm())
    planned = world.plan()
    assert planned.status is not None
    assert planned.status["predictors"][0]["reason"] == "ReplicasNotReady"
    assert prefetched(world)[0] == "False"
    assert planned.status_may_wait


def test_first_ready_does_not_wait_for_the_nodes() -> None:
    world = InferenceWorld(arm())
    world.plan()
    report(world, nodes=2, ready=1)
    while not conditions.is_true(world.inference, "Ready"):
        planned = world.go_on()
    assert planned.status is not None
    assert planned.status["predictors"][0]["prefetch"] == {"nodes": 2, "readyNodes": 1}
    assert not planned.status_may_wait


def test_condition_has_the_reason_when_the_model_is_copied() -> None:
    world = InferenceWorld(arm())
    world.volume = VolumeChoice("copy", "node a: containerd 1.6.33: mounts images since 2.1")
    world.settle()
    assert not world.daemon_sets
    status, reason, message = prefetched(world)
    assert (status, reason) == ("False", "ModelCopied")
    assert "its Pods copy the model and mount no image" in message
    assert conditions.is_true(world.inference, "Ready")


def test_condition_is_true_and_nothing_is_written_when_the_api_has_no_daemon_sets() -> None:
    world = InferenceWorld(arm())
    world.seen["daemon_sets"] = None
    world.settle()
    assert not world.daemon_sets
    assert prefetched(world)[:2] == ("True", "NotNeeded")


def test_refused_daemon_set_is_in_the_condition_and_the_stored_one_stays() -> None:
    world = settled(arm())
    (name,) = world.daemon_sets
    del world.daemon_sets[name]["spec"]["template"]["spec"]["nodeSelector"]
    world.seen["prefetch_refused"] = {name: "no DaemonSets for you"}
    planned = planner.plan(world.now(), NOW)
    assert planned.actions == ()
    world.plan()
    assert prefetched(world) == (
        "False",
        "PrefetchRefused",
        f"predictor stable: revision {name}: its DaemonSet was refused: no DaemonSets for you",
    )


@pytest.mark.parametrize("field", ["nodeSelector", "volumes", "containers"])
def test_field_that_others_have_removed_is_put_back(field: str) -> None:
    world = settled(arm())
    (stored,) = world.daemon_sets.values()
    before = dict(stored["spec"]["template"]["spec"])
    del stored["spec"]["template"]["spec"][field]
    world.plan()
    (stored,) = world.daemon_sets.values()
    assert stored["spec"]["template"]["spec"] == before


def test_another_waiting_image_changes_the_daemon_set_and_no_revision() -> None:
    world = settled(arm())
    revisions = set(world.deployments)
    world.seen["runtime_images"] = RuntimeImageSettings(waiter="registry.corp/pause:3")
    world.settle()
    (stored,) = world.daemon_sets.values()
    assert stored["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.corp/pause:3"
    assert set(world.deployments) == revisions
