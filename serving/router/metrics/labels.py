"""The labels of every metric about a revision, and Prometheus's text format."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from serving.router.plan.service import cluster_name


class Labels(NamedTuple):
    """One revision of one predictor."""

    namespace: str
    inference: str
    predictor: str
    revision: str

    @property
    def text(self) -> str:
        """The labels as they stand between braces: `namespace="default",inference=...`."""
        return ",".join(f'{name}="{escaped(value)}"' for name, value in self._asdict().items())


def labels_of(route: Mapping[str, Any]) -> dict[str, Labels]:
    """Return the labels of a Route's backends, by their clusters in Envoy."""
    namespace, spec = route["metadata"]["namespace"], route["spec"]
    backends = spec.get("backends") or []
    return {
        cluster_name(namespace, backend): Labels(
            namespace, spec["inference"], backend["arm"], backend["name"]
        )
        # Two backends may name one port of one Service, which is one cluster: the first gives the labels.
        for backend in reversed(backends)
    }


def escaped(value: str) -> str:
    """Return a label's value in Prometheus's text format."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def family(name: str, kind: str, text: str, samples: Iterable[str]) -> str:
    """Return one metric: its help text, its type and its samples (whole lines)."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{''.join(samples)}"
