"""Lookups from selectors to labels and back, after any sequence of changes."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.workloads.endpoint_slice.selection import Selection

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)
NAMESPACES = st.sampled_from(["one", "two"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("selector"), st.integers(0, 3), NAMESPACES, LABELS),
        st.tuples(st.just("labels"), st.integers(0, 3), NAMESPACES, st.none() | LABELS),
    ),
    max_size=30,
)


@given(CHANGES)
def test_selection_equals_a_comparison_of_all_objects(changes) -> None:
    kept: Selection[str] = Selection()
    services: dict[str, tuple[str, dict[str, str]]] = {}
    pods: dict[str, tuple[str, dict[str, str]]] = {}
    for change, number, namespace, labels in changes:
        if change == "selector":
            name = f"{namespace}/service{number}"
            kept.set_selector(name, namespace, labels)
            services[name] = (namespace, labels)
        else:
            name = f"{namespace}/pod{number}"
            kept.set_labels(name, namespace, labels)
            pods[name] = (namespace, labels)

    def match(service: str, pod: str) -> bool:
        (service_namespace, selector), (pod_namespace, labels) = services[service], pods[pod]
        same_namespace = service_namespace == pod_namespace
        return bool(selector) and labels is not None and same_namespace and selector.items() <= labels.items()

    for service in services:
        assert kept.selected_by(service) == {pod for pod in pods if match(service, pod)}
    for pod, (namespace, labels) in pods.items():
        if labels is not None:
            assert kept.selecting(namespace, labels) == {s for s in services if match(s, pod)}


def test_memory_of_objects_is_freed_when_they_come_and_go() -> None:
    kept: Selection[str] = Selection()
    kept.set_selector("web", "one", {"app": "web"})
    empty = len(pickle.dumps(kept))
    for number in range(1000):
        labels = {"app": f"web-{number}", "pod-template-hash": str(number)}
        kept.set_labels("pod", "one", labels)
        kept.set_selector("service", "one", labels)
    kept.set_labels("pod", "one", None)
    kept.set_selector("service", "one", {})
    assert len(pickle.dumps(kept)) == empty
