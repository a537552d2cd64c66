"""Which Services select which Pods, in both directions, at a cost that does not grow with unrelated objects.

Services are many, but their selectors use few different sets of label names. For each such set of names (a
shape), Pods and Services are matched by the values that they have for it.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
Shape = tuple[str, ...]
Place = tuple[str, Shape, tuple[str, ...]]


class Selection(Generic[T]):
    """An index of selectors and of labelled things (both of type T), in all namespaces."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, int] = {}
        self._selectors: dict[T, Place] = {}
        self._labels: dict[T, tuple[str, dict[str, str]]] = {}
        self._selecting: dict[Place, set[T]] = {}
        self._selected: dict[Place, set[T]] = {}

    def set_selector(self, selecting: T, namespace: str, selector: Mapping[str, str]) -> None:
        """Set the labels by which one selects; an empty selector selects nothing."""
        if (old := self._selectors.pop(selecting, None)) is not None:
            self._selecting[old].discard(selecting)
            self._shapes[old[1]] -= 1
            if not self._shapes[old[1]]:
                del self._shapes[old[1]]
                self._selected = {p: things for p, things in self._selected.items() if p[1] != old[1]}
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
        self._selectors[selecting] = place
        self._selecting.setdefault(place, set()).add(selecting)

    def set_labels(self, thing: T, namespace: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels of a thing; None where it is gone."""
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

    def selected_by(self, selecting: T) -> set[T]:
        """Return the things that one selects."""
        place = self._selectors.get(selecting)
        return set(self._selected.get(place, ())) if place is not None else set()

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> set[T]:
        """Return those that select a thing with these labels."""
        places = (_place(namespace, shape, labels) for shape in self._shapes)
        return {one for place in places if place is not None for one in self._selecting.get(place, ())}


def _place(namespace: str, shape: Shape, labels: Mapping[str, str]) -> Place | None:
    if not all(name in labels for name in shape):
        return None
    return (namespace, shape, tuple(labels[name] for name in shape))
