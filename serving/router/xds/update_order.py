"""The order of updates to Envoy, in which no request needs a resource that Envoy lacks.

Between an update and its acknowledgement Envoy may have the old or the new version of a resource. So Envoy
must have acknowledged clusters and endpoints before it gets the weights that use them, and all three before
it gets the routes that name them. Resources are removed in the reverse order. Weights whose clusters and
routes Envoy has are sent at once. The cost depends on the differences, not on the number of resources, except
for routes, which Envoy itself reads as a whole.
"""

from collections.abc import Iterable

from serving.router.envoy.render import Dependencies
from serving.router.envoy.resource import NO_ENDPOINTS
from serving.router.envoy.weights import Weights
from serving.router.xds.resource_state import ResourceState


class UpdateOrder:
    """The resources of one Envoy, their targets, and the updates that may be sent next."""

    def __init__(self) -> None:
        self.clusters: ResourceState[str] = ResourceState()
        self.endpoints: ResourceState[str] = ResourceState()
        self.weights: ResourceState[Weights] = ResourceState()
        self.routes: ResourceState[str] = ResourceState()
        self.dependencies: dict[str, Dependencies] = {}
        """Dependencies of the target's route configurations, by name."""

    @property
    def routed(self) -> bool:
        """Whether Envoy has acknowledged the target's routes and weights, so that it uses no old resource."""
        return not any(state.awaiting_answer or state.to_update() for state in (self.routes, self.weights))

    @property
    def settled(self) -> bool:
        """Whether Envoy has acknowledged the whole target."""
        # Removed endpoints are not sent: Envoy drops the endpoints of a cluster with the cluster.
        return (
            self.routed
            and not any(
                state.awaiting_answer or state.to_update() for state in (self.clusters, self.endpoints)
            )
            and not (self.clusters.to_remove() or self.weights.to_remove())
        )

    def clusters_to_send(self) -> dict[str, str | None]:
        """Return the clusters to add or change and, once they are unused, those to remove."""
        updates: dict[str, str | None] = {
            name: self.clusters.target[name] for name in self.clusters.to_update()
        }
        if self.routed:
            updates |= dict.fromkeys(self.clusters.to_remove())
        return updates

    def endpoints_to_send(self, subscribed: Iterable[str]) -> dict[str, str | None]:
        """Return the endpoints to send.

        While old routes or weights may use a cluster, it keeps its last endpoint: an empty set is sent only
        for a cluster that has no set at Envoy yet, as Envoy waits for a first one.

        Args:
            subscribed: the clusters whose endpoints Envoy subscribes to.
        """
        endpoints, routed = self.endpoints, self.routed
        return {
            name: endpoints.target[name]
            for name in endpoints.to_update()
            if name in subscribed
            and (
                routed
                or endpoints.target[name] != NO_ENDPOINTS
                or endpoints.possible_versions(name) == (None, None)
            )
        }

    def weights_to_send(self) -> dict[str, Weights | None]:
        """Return the weights to send, by key prefix.

        Envoy gets weights once the clusters that need endpoints have them. Weights that Envoy does not have
        are sent at once: no route reads them, as routes wait for their weights.
        """
        weights = self.weights
        updates: dict[str, Weights | None] = {
            prefix: weights.target[prefix]
            for prefix in weights.to_update()
            if weights.possible_versions(prefix) == (None, None)
            or self._can_serve(weights.target[prefix].needs)
        }
        if self.routed:
            updates |= dict.fromkeys(weights.to_remove())
        return updates

    def routes_to_send(self) -> dict[str, str | None]:
        """Return the route configurations whose dependencies Envoy has, in both of the possible versions."""
        return {
            name: self.routes.target[name]
            for name in self.routes.to_update()
            if self._has(self.dependencies[name])
        }

    def _has(self, dependencies: Dependencies) -> bool:
        """Whether Envoy has all named clusters, the weights, and endpoints wherever there is weight."""
        return (
            self._can_serve(dependencies.serving)
            and all(None not in self.clusters.possible_versions(name) for name in dependencies.named)
            and all(
                weights is not None and self._can_serve(weights.needs)
                for prefix in dependencies.weights
                for weights in self.weights.possible_versions(prefix)
            )
        )

    def _can_serve(self, clusters: Iterable[str]) -> bool:
        """Whether these clusters have endpoints, in both of the possible versions."""
        return all(
            None not in self.clusters.possible_versions(name)
            and all(version not in (None, NO_ENDPOINTS) for version in self.endpoints.possible_versions(name))
            for name in clusters
        )
