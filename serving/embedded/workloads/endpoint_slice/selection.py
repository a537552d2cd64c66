"""An index of selectors and labels, from Services to Pods and back.

Selectors use few different sets of label names. For each such set (a shape), Pods and Services are matched by
their values, so that a lookup does not depend on the number of objects.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
Shape = tuple[str, ...]
Place = tuple[str, Shape, tuple[str, ...]]


class Selection(Generic[T]):
    """The selectors and the labels of objects (both of type T), in all namespaces."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, int] = {}
        self._selectors: dict[T, Place] = {}
        self._labels: dict[T, tuple[str, dict[str, str]]] = {}
        self._selecting: dict[Place, set[T]] = {}
        self._selected: dict[Place, set[T]] = {}

    def set_selector(self, selecting: T, namespace: str, selector: Mapping[str, str]) -> None:
        """Set the selector of `selecting`; an empty selector selects nothing."""
        if (old := self._selectors.pop(selecting, None)) is not None:
            _discard(self._selecting, old, selecting)
            self._shapes[old[1]] -= 1
            if not self._shapes[old[1]]:
                del self._shapes[old[1]]
                self._selected = {p: objects for p, objects in self._selected.items() if p[1] != old[1]}
        if not selector:
            return
        shape = tuple(sorted(selector))
        if shape not in self._shapes:
            self._shapes[shape] = 0
            for labelled, (own_namespace, labels) in self._labels.items():
                if (place := _place(own_namespace, shape, labels)) is not None:
                    self._selected.setdefault(place, set()).add(labelled)
        self._shapes[shape] += 1
        place = (namespace, shape, tuple(selector[name] for name in shape))
        self._selectors[selecting] = place
        self._selecting.setdefault(place, set()).add(selecting)

    def set_labels(self, labelled: T, namespace: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels of an object; None when it is gone."""
        if (old := self._labels.pop(labelled, None)) is not None:
            for shape in self._shapes:
                if (place := _place(old[0], shape, old[1])) is not None:
                    _discard(self._selected, place, labelled)
        if labels is None:
            return
        self._labels[labelled] = (namespace, dict(labels))
        for shape in self._shapes:
            if (place := _place(namespace, shape, labels)) is not None:
                self._selected.setdefault(place, set()).add(labelled)

    def selected_by(self, selecting: T) -> set[T]:
        """Return the objects that `selecting` selects."""
        place = self._selectors.get(selecting)
        return set(self._selected.get(place, ())) if place is not None else set()

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> set[T]:
        """Return the objects that select these labels."""
        places = (_place(namespace, shape, labels) for shape in self._shapes)
        return {key for place in places if place is not None for key in self._selecting.get(place, ())}


def _discard(index: dict[Place, set[T]], place: Place, key: T) -> None:
    """Remove an object from its place, and the place with its last object: each revision has new labels."""
    objects = index[place]
    objects.discard(key)
    if not objects:
        del index[place]


def _place(namespace: str, shape: Shape, labels: Mapping[str, str]) -> Place | None:
    if not all(name in labels for name in shape):
        return None
    return (namespace, shape, tuple(labels[name] for name in shape))
