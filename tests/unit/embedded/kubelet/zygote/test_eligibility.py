import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.kubelet.zygote.eligibility import (
    NeededZygotes,
    ZygoteKey,
    can_fork,
    can_fork_with,
    zygotes_for,
)
from serving.resources.names import ZYGOTE_ANNOTATION

IMAGES = {"runtime"}
EXEC = {"exec": {"command": ["true"]}}


@pytest.mark.parametrize(
    "container",
    [
        {"image": "other"},
        {"command": ["python"]},
        {"env": [{"name": "PYTHONPATH", "value": "/x"}]},
        {"env": [{"name": "LD_PRELOAD", "value": "x.so"}]},
        {"env": [{"name": "TZ", "value": "CET"}]},
        {"livenessProbe": EXEC},
        {"startupProbe": EXEC},
        {"lifecycle": {"preStop": EXEC}},
    ],
)
def test_container_is_not_forked_when_its_spec_needs_a_new_process(container):
    assert can_fork({}, {"image": "runtime", "env": [{"name": "OMP_NUM_THREADS", "value": "2"}]}, IMAGES)
    assert not can_fork({}, {"image": "runtime", **container}, IMAGES)


def test_annotation_disables_forks():
    assert not can_fork({"annotations": {ZYGOTE_ANNOTATION: "disabled"}}, {"image": "runtime"}, IMAGES)


def test_environment_from_references_can_prevent_a_fork():
    assert can_fork_with({"LANG": "C.UTF-8", "A": "1"})
    assert not can_fork_with({"LANG": "de_DE.UTF-8"})
    assert not can_fork_with({"LANG": "C.UTF-8", "PYTHONOPTIMIZE": "2"})


def deployment(namespace: str, *images: str) -> dict:
    template = {"spec": {"containers": [{"name": str(n), "image": image} for n, image in enumerate(images)]}}
    return {"metadata": {"namespace": namespace}, "spec": {"replicas": 0, "template": template}}


def test_deployment_at_zero_needs_a_zygote_and_a_deleted_one_none():
    assert zygotes_for(deployment("a", "runtime", "other"), IMAGES) == {ZygoteKey("a", "runtime")}
    assert zygotes_for(None, IMAGES) == set()


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.none() | st.sampled_from("ab"))))
def test_zygote_is_needed_while_any_deployment_needs_it(changes):
    needed, now = NeededZygotes(), dict.fromkeys("xyz")
    for name, namespace in changes:
        before, after = (zygotes_for(n and deployment(n, "runtime"), IMAGES) for n in (now[name], namespace))
        was = needed.all()
        assert needed.changed(before, after) is (needed.all() != was)
        now[name] = namespace
        assert needed.all() == {ZygoteKey(n, "runtime") for n in now.values() if n}
