"""The order of updates to Envoy, in which no request needs a resource that Envoy lacks.

Between an update and its acknowledgement Envoy may have the old or the new version. A cluster that any
possible route names, and a weight that any possible route needs, must be in both. So clusters and endpoints
are sent before the weights that use them, and both before the routes that name them; they are removed in
reverse. Weights whose clusters and routes Envoy has are sent at once. The cost depends on the differences,
not on the number of resources, except for routes, which Envoy itself reads as a whole.
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
        """Dependencies of the target's route configurations."""

    @property
    def routed(self) -> bool:
        """Whether Envoy has acknowledged the target's routes and weights and uses no old resources."""
        return not any(state.awaiting_answer or state.to_update() for state in (self.routes, self.weights))

    @property
    def settled(self) -> bool:
        """Whether Envoy has acknowledged the whole target."""
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
        return updates | dict.fromkeys(self.clusters.to_remove() if self.routed else ())

    def endpoints_to_send(self, subscribed: Iterable[str]) -> dict[str, str | None]:
        """Return the endpoints to send; a cluster in use keeps its last endpoint.

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
        """Return the weights to send: of clusters with endpoints, and those that no route uses yet."""
        weights = self.weights
        updates: dict[str, Weights | None] = {
            prefix: weights.target[prefix]
            for prefix in weights.to_update()
            if weights.possible_versions(prefix) == (None, None)
            or self._can_serve(weights.target[prefix].needs)
        }
        return updates | dict.fromkeys(weights.to_remove() if self.routed else ())

    def routes_to_send(self) -> dict[str, str | None]:
        """Return the route configurations whose dependencies Envoy has and is not losing."""
        return {
            name: self.routes.target[name]
            for name in self.routes.to_update()
            if self._has(self.dependencies[name])
        }

    def _has(self, dependencies: Dependencies) -> bool:
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
        """Whether these clusters have endpoints, whichever of the possible versions Envoy has."""
        return all(
            None not in self.clusters.possible_versions(name)
            and all(version not in (None, NO_ENDPOINTS) for version in self.endpoints.possible_versions(name))
            for name in clusters
        )
