"""A revision keeps its source of the model's files, and new ones get that of the cluster."""

from serving.objects import Object
from serving.planning.models.volume import VolumeChoice
from serving.resources.kubernetes import conditions
from tests.fakes.inference_world import InferenceWorld
from tests.fakes.surroundings import predictor

IMAGE = VolumeChoice("image", "every node mounts images")
COPY = VolumeChoice("copy", "node a: containerd 1.6.33: mounts images since 2.1")


def world_of(choice: VolumeChoice, *, ready: bool = True) -> InferenceWorld:
    """Return a world whose only predictor was created under a choice, and serves if it is ready."""
    world = InferenceWorld(predictor("a", "v1"))
    world.volume = choice
    if not ready:
        world.broken.add("v1")
    world.settle()
    return world


def sources(world: InferenceWorld) -> dict[str, str]:
    """Return the source of each Deployment by its ModelVersion."""
    return {_version(each): _source(each) for each in world.deployments.values()}


def _version(deployment: Object) -> str:
    version: str = deployment["spec"]["template"]["metadata"]["annotations"]["slipway.dev/model-version"]
    return version


def _source(deployment: Object) -> str:
    return "copy" if "initContainers" in deployment["spec"]["template"]["spec"] else "image"


def model_ready(world: InferenceWorld) -> str:
    condition = conditions.find(world.inference["status"]["conditions"], "ModelReady") or {}
    assert condition["status"] == "True"
    return str(condition["message"])


def test_a_new_revision_gets_the_source_of_the_cluster() -> None:
    assert sources(world_of(IMAGE)) == {"v1": "image"}
    assert sources(world_of(COPY)) == {"v1": "copy"}


def test_a_revision_that_serves_keeps_its_source_when_the_cluster_changes() -> None:
    for before, after in ((IMAGE, COPY), (COPY, IMAGE)):
        world = world_of(before)
        revisions = set(world.deployments)
        for choice in (after, before, after):
            world.volume = choice
            world.settle()
            assert set(world.deployments) == revisions


def test_the_next_revision_gets_the_new_source_when_the_cluster_has_changed() -> None:
    for before, after in ((IMAGE, COPY), (COPY, IMAGE)):
        world = world_of(before)
        world.volume = after
        world.edit(predictor("a", "v2"))
        world.settle()
        assert sources(world) == {"v2": after.source}


def test_a_revision_that_never_became_ready_is_copied_when_the_cluster_has_no_image_volumes() -> None:
    world = world_of(IMAGE, ready=False)
    assert sources(world) == {"v1": "image"}
    world.volume = COPY
    world.settle()
    assert sources(world) == {"v1": "copy"}


def test_a_copy_that_is_being_proven_is_kept_when_the_cluster_gets_image_volumes() -> None:
    world = world_of(COPY, ready=False)
    revisions = set(world.deployments)
    world.volume = IMAGE
    world.settle()
    assert set(world.deployments) == revisions
    assert sources(world) == {"v1": "copy"}


def test_a_set_source_gives_existing_revisions_a_successor() -> None:
    world = world_of(IMAGE)
    world.volume = VolumeChoice("copy", "models.volume is copy", is_set=True)
    world.settle()
    assert sources(world) == {"v1": "copy"}


def test_a_setting_that_names_the_present_source_changes_no_revision() -> None:
    world = world_of(COPY)
    revisions = set(world.deployments)
    world.volume = VolumeChoice("copy", "models.volume is copy", is_set=True)
    world.settle()
    assert set(world.deployments) == revisions


def test_the_status_has_the_source_and_its_reason() -> None:
    world = world_of(COPY)
    assert model_ready(world) == f"predictor a: an init container copies the model ({COPY.reason})"
    world.volume = IMAGE
    world.plan()
    assert model_ready(world) == (
        "predictor a: an init container copies the model, until its next revision (every node mounts images)"
    )


def test_the_status_of_an_image_volume_has_a_message_only_where_new_revisions_are_copied() -> None:
    world = world_of(IMAGE)
    assert model_ready(world) == ""
    world.volume = COPY
    world.plan()
    assert model_ready(world) == f"predictor a: an image volume, until its next revision ({COPY.reason})"
