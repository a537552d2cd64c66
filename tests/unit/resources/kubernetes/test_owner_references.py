from serving.resources import kinds
from serving.resources.kubernetes import owner_references

MODEL = {"metadata": {"name": "digits", "namespace": "default", "uid": "uid-digits"}}


def test_a_controller_reference_blocks_the_owners_deletion_unless_it_may_not() -> None:
    identity = {"apiVersion": "slipway.dev/v1alpha1", "kind": "Model", "name": "digits", "uid": "uid-digits"}
    assert owner_references.controller_reference(kinds.MODEL, MODEL) == {
        **identity,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert owner_references.controller_reference(kinds.MODEL, MODEL, blocks_deletion=False) == {
        **identity,
        "controller": True,
    }


def test_the_controller_of_an_object_is_none_when_no_owner_controls_it() -> None:
    controller = owner_references.controller_reference(kinds.MODEL, MODEL)
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "notes", "uid": "uid-notes"}
    owned = {"metadata": {"ownerReferences": [other, controller]}}
    assert owner_references.controller_of(owned) == controller
    assert owner_references.controller_of({"metadata": {"ownerReferences": [other]}}) is None
    assert owner_references.controller_of({"metadata": {}}) is None
