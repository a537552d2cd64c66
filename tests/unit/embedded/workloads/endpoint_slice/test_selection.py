"""Selectors and labels meet both ways, after any sequence of changes."""

from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.workloads.endpoint_slice.selection import Selection

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)
WHERE = st.sampled_from(["one", "two"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("selector"), st.integers(0, 3), WHERE, LABELS),
        st.tuples(st.just("labels"), st.integers(0, 3), WHERE, st.none() | LABELS),
    ),
    max_size=30,
)


@given(CHANGES)
def test_selection_equals_a_comparison_of_all_objects(changes) -> None:
    kept: Selection[str] = Selection()
    services: dict[str, tuple[str, dict[str, str]]] = {}
    pods: dict[str, tuple[str, dict[str, str]]] = {}
    for what, number, namespace, labels in changes:
        if what == "selector":
            name = f"{namespace}/service{number}"
            kept.set_selector(name, namespace, labels)
            services[name] = (namespace, labels)
        else:
            name = f"{namespace}/pod{number}"
            kept.set_labels(name, namespace, labels)
            pods[name] = (namespace, labels)

    def match(service: str, pod: str) -> bool:
        (home, selector), (other, labels) = services[service], pods[pod]
        return bool(selector) and labels is not None and home == other and selector.items() <= labels.items()

    for service in services:
        assert kept.selected_by(service) == {pod for pod in pods if match(service, pod)}
    for pod, (namespace, labels) in pods.items():
        if labels is not None:
            assert kept.selecting(namespace, labels) == {s for s in services if match(s, pod)}
