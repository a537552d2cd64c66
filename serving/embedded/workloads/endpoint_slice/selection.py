"""An index from Services to the Pods that they select, and from the labels of a Pod to the Services.

Selectors use few different sets of label names. For each such set (a shape), Pods and Services are matched by
their values, so that a lookup does not depend on the number of objects.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)
Shape = tuple[str, ...]
"""The label names of a selector, sorted."""


class MatchKey(NamedTuple):
    """A selector selects labels if both have the same key for the selector's shape."""

    namespace: str
    shape: Shape
    values: tuple[str, ...]
    """The value of each name of the shape."""


class Selection(Generic[T]):
    """The selectors of Services and the labels of Pods in all namespaces; T identifies both."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, int] = {}
        """The number of selectors of each shape."""
        self._selectors: dict[T, MatchKey] = {}
        self._labels: dict[T, tuple[str, dict[str, str]]] = {}
        """(namespace, labels) of each Pod."""
        self._selecting: dict[MatchKey, set[T]] = {}
        """The Services by the key of their selector."""
        self._selected: dict[MatchKey, set[T]] = {}
        """The Pods by each key of their labels, one for each shape whose names they have."""

    def set_selector(self, selecting: T, namespace: str, selector: Mapping[str, str]) -> None:
        """Set the selector of the Service `selecting`; an empty selector selects nothing."""
        if (old := self._selectors.pop(selecting, None)) is not None:
            _discard(self._selecting, old, selecting)
            self._shapes[old.shape] -= 1
            if not self._shapes[old.shape]:
                del self._shapes[old.shape]
                self._selected = {
                    key: labelled for key, labelled in self._selected.items() if key.shape != old.shape
                }
        if not selector:
            return
        shape = tuple(sorted(selector))
        if shape not in self._shapes:
            self._shapes[shape] = 0
            for labelled, (own_namespace, labels) in self._labels.items():
                if (key := _match_key(own_namespace, shape, labels)) is not None:
                    self._selected.setdefault(key, set()).add(labelled)
        self._shapes[shape] += 1
        key = MatchKey(namespace, shape, tuple(selector[name] for name in shape))
        self._selectors[selecting] = key
        self._selecting.setdefault(key, set()).add(selecting)

    def set_labels(self, labelled: T, namespace: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels of the Pod `labelled`; None when the Pod is gone."""
        if (old := self._labels.pop(labelled, None)) is not None:
            old_namespace, old_labels = old
            for shape in self._shapes:
                if (key := _match_key(old_namespace, shape, old_labels)) is not None:
                    _discard(self._selected, key, labelled)
        if labels is None:
            return
        self._labels[labelled] = (namespace, dict(labels))
        for shape in self._shapes:
            if (key := _match_key(namespace, shape, labels)) is not None:
                self._selected.setdefault(key, set()).add(labelled)

    def selected_by(self, selecting: T) -> set[T]:
        """Return the Pods that the Service `selecting` selects."""
        key = self._selectors.get(selecting)
        return set(self._selected.get(key, ())) if key is not None else set()

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> set[T]:
        """Return the Services that select these labels."""
        keys = (_match_key(namespace, shape, labels) for shape in self._shapes)
        return {service for key in keys if key is not None for service in self._selecting.get(key, ())}


def _discard(index: dict[MatchKey, set[T]], key: MatchKey, member: T) -> None:
    """Remove a Pod or Service, and a key without members: each revision has keys of its own, which would
    pile up.
    """
    members = index[key]
    members.discard(member)
    if not members:
        del index[key]


def _match_key(namespace: str, shape: Shape, labels: Mapping[str, str]) -> MatchKey | None:
    """Return the key of the labels for a shape; None if they lack one of its names."""
    if not all(name in labels for name in shape):
        return None
    return MatchKey(namespace, shape, tuple(labels[name] for name in shape))
