"""Which Services select which Pods, both ways, at a cost that does not grow with bystanders.

Services are few in shape though many in number: their selectors use a handful of sets of label names. For each
such set, Pods and Services meet under the values that they have for it.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
Shape = tuple[str, ...]
Place = tuple[str, Shape, tuple[str, ...]]


class Selection(Generic[T]):
    """Keeps selectors and labelled things of type T, of all namespaces."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, int] = {}
        self._selectors: dict[T, Place] = {}
        self._labels: dict[T, tuple[str, dict[str, str]]] = {}
        self._selecting: dict[Place, set[T]] = {}
        self._selected: dict[Place, set[T]] = {}

    def set_selector(self, who: T, namespace: str, selector: Mapping[str, str]) -> None:
        """`who` selects by these labels now; by none where it is empty."""
        if (old := self._selectors.pop(who, None)) is not None:
            self._selecting[old].discard(who)
            self._shapes[old[1]] -= 1
            if not self._shapes[old[1]]:
                del self._shapes[old[1]]
                self._selected = {p: found for p, found in self._selected.items() if p[1] != old[1]}
        if not selector:
            return
        shape = tuple(sorted(selector))
        if shape not in self._shapes:
            self._shapes[shape] = 0
            for thing, (home, labels) in self._labels.items():
                if (place := _place(home, shape, labels)) is not None:
                    self._selected.setdefault(place, set()).add(thing)
        self._shapes[shape] += 1
        place = (namespace, shape, tuple(selector[name] for name in shape))
        self._selectors[who] = place
        self._selecting.setdefault(place, set()).add(who)

    def set_labels(self, thing: T, namespace: str, labels: Mapping[str, str] | None) -> None:
        """`thing` has these labels now; None: it is gone."""
        if (old := self._labels.pop(thing, None)) is not None:
            for shape in self._shapes:
                if (place := _place(old[0], shape, old[1])) is not None:
                    self._selected.get(place, set()).discard(thing)
        if labels is None:
            return
        self._labels[thing] = (namespace, dict(labels))
        for shape in self._shapes:
            if (place := _place(namespace, shape, labels)) is not None:
                self._selected.setdefault(place, set()).add(thing)

    def selected_by(self, who: T) -> set[T]:
        """Return the things that `who` selects."""
        place = self._selectors.get(who)
        return set(self._selected.get(place, ())) if place is not None else set()

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> set[T]:
        """Return who selects a thing with these labels."""
        places = (_place(namespace, shape, labels) for shape in self._shapes)
        return {who for place in places if place is not None for who in self._selecting.get(place, ())}


def _place(namespace: str, shape: Shape, labels: Mapping[str, str]) -> Place | None:
    if not all(name in labels for name in shape):
        return None
    return (namespace, shape, tuple(labels[name] for name in shape))
