"""The labels of every metric about a revision."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from serving.resources.formats.metrics_text import escaped
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
