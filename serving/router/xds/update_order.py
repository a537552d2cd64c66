"""What Envoy must be told, and when, on its way from one plan to the next, so that no request meets what is missing.

Between an update and its acknowledgement Envoy may have what it had before or what was sent. A cluster that any of
those routes names, and a weight that any of them needs, must be in both. So clusters and endpoints come before the
weights that send requests to them, and both before the routes that name them; they go in reverse. Weights whose
clusters and routes are there wait for nothing. What is asked here costs what differs, not what is stored, but for
routes, which Envoy itself reads as a whole.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from serving.router.envoy.render import EMPTY, Needs
from serving.router.envoy.weights import Weights

V = TypeVar("V")


class Table(Generic[V]):
    """One type of resource, by name: the versions that Envoy is to have, has, and has not answered yet."""

    def __init__(self) -> None:
        self.target: dict[str, V] = {}
        self.accepted: dict[str, V] = {}
        self.busy = False
        """A response is on its way."""
        self._on_its_way: dict[str, V | None] = {}
        self._doubtful: set[str] = set()
        self._open: set[str] = set()
        """Names that may have to be sent; all others are as they are to be."""

    def want(self, changes: Mapping[str, V | None]) -> None:
        """Change the target; None for what Envoy is to lose."""
        for name, version in changes.items():
            if version is None:
                self.target.pop(name, None)
            else:
                self.target[name] = version
        self._open |= changes.keys()

    def begin(self, accepted: Mapping[str, V]) -> None:
        """Forget what was: an Envoy has come that has this."""
        self.accepted = dict(accepted)
        self.busy = False
        self._on_its_way, self._doubtful = {}, set()
        self._open = self.target.keys() | self.accepted.keys()

    def sent(self, name: str) -> V | None:
        """Return the version that Envoy has once it has accepted everything; None for none, or an unknown one."""
        if name in self._doubtful:
            return None
        return self._on_its_way[name] if name in self._on_its_way else self.accepted.get(name)

    def both(self, name: str) -> tuple[V | None, V | None]:
        """Return the versions that Envoy may have: the accepted one, and the one sent."""
        return self.accepted.get(name), self.sent(name)

    def all_sent(self) -> dict[str, V]:
        """Return everything that Envoy has once it has accepted everything."""
        return {n: v for n, v in {**self.accepted, **self._on_its_way}.items() if v is not None}

    def missing(self) -> list[str]:
        """Return what is to be sent."""
        return [name for name in self._differing() if name in self.target]

    def obsolete(self) -> list[str]:
        """Return what Envoy is to lose."""
        return [name for name in self._differing() if name not in self.target]

    def send(self, versions: Mapping[str, V | None]) -> None:
        """Note what is on its way now; nothing else is before it has been answered."""
        self.busy = True
        self._on_its_way = dict(versions)
        self._doubtful -= versions.keys()
        self._open |= versions.keys()

    def answered(self, *, accepted: bool, whole: bool = False) -> None:
        """Note the answer. Of what was rejected, parts may have been accepted, unless it is one resource (`whole`)."""
        self.busy = False
        sent, self._on_its_way = self._on_its_way, {}
        if accepted:
            for name, version in sent.items():
                if version is None:
                    self.accepted.pop(name, None)
                else:
                    self.accepted[name] = version
        elif not whole:
            self._doubtful |= sent.keys()

    def forget(self, name: str) -> None:
        """Envoy has dropped it of itself, or asks for it again."""
        self.accepted.pop(name, None)
        self._on_its_way.pop(name, None)
        self._doubtful.discard(name)
        self._open.add(name)

    def _differing(self) -> set[str]:
        self._open = {
            name for name in self._open if name in self._doubtful or self.sent(name) != self.target.get(name)
        }
        return self._open


class Order:
    """What one Envoy has and is to have, and what it may be sent next. Endpoints of version EMPTY are none."""

    def __init__(self) -> None:
        self.clusters: Table[str] = Table()
        self.endpoints: Table[str] = Table()
        self.weights: Table[Weights] = Table()
        self.routes: Table[str] = Table()
        self.needs: dict[str, Needs] = {}
        """Of the target's route configurations."""

    @property
    def routed(self) -> bool:
        """Whether Envoy has accepted the target's routes and weights, so that nothing needs what it is to lose."""
        return not any(table.busy or table.missing() for table in (self.routes, self.weights))

    @property
    def settled(self) -> bool:
        """Whether Envoy has accepted all of the target."""
        return (
            self.routed
            and not any(table.busy or table.missing() for table in (self.clusters, self.endpoints))
            and not (self.clusters.obsolete() or self.weights.obsolete())
        )

    def clusters_to_send(self) -> dict[str, str | None]:
        """Return the clusters to add or change, and those to remove: none before nothing else needs them."""
        found: dict[str, str | None] = {name: self.clusters.target[name] for name in self.clusters.missing()}
        return found | dict.fromkeys(self.clusters.obsolete() if self.routed else ())

    def endpoints_to_send(self, subscribed: Iterable[str]) -> dict[str, str | None]:
        """Return the endpoints to send next. A cluster does not lose its last one before nothing else needs it.

        Args:
            subscribed: the clusters whose endpoints Envoy asks for.
        """
        table, routed = self.endpoints, self.routed
        return {
            name: table.target[name]
            for name in table.missing()
            if name in subscribed
            and (routed or table.target[name] != EMPTY or table.both(name) == (None, None))
        }

    def weights_to_send(self) -> dict[str, Weights | None]:
        """Return the weights to send next: those whose clusters have endpoints, and those that no route has yet."""
        table = self.weights
        found: dict[str, Weights | None] = {
            prefix: table.target[prefix]
            for prefix in table.missing()
            if table.sent(prefix) is None or self._serve(table.target[prefix].needs)
        }
        return found | dict.fromkeys(table.obsolete() if self.routed else ())

    def routes_to_send(self) -> dict[str, str | None]:
        """Return the route configurations all of whose needs Envoy has, and is not losing."""
        return {
            name: self.routes.target[name] for name in self.routes.missing() if self._met(self.needs[name])
        }

    def _met(self, needs: Needs) -> bool:
        return (
            self._serve(needs.serving)
            and all(None not in self.clusters.both(name) for name in needs.named)
            and all(
                held is not None and self._serve(held.needs)
                for prefix in needs.weights
                for held in self.weights.both(prefix)
            )
        )

    def _serve(self, clusters: Iterable[str]) -> bool:
        """Whether these have endpoints, whatever of what was sent Envoy has accepted."""
        return all(
            None not in self.clusters.both(name)
            and all(version not in (None, EMPTY) for version in self.endpoints.both(name))
            for name in clusters
        )
