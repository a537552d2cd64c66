"""The readiness of one component: its work reports it, and its health page publishes it to kubelets.

Nothing is stored here: the component answers each time that its readiness is asked for.
"""

from collections.abc import Callable


class Readiness:
    """Not ready until the component gives a function that tells why it is not, or that it is."""

    def __init__(self) -> None:
        self._obstacle: Callable[[], str] = lambda: "it is starting"

    def follow(self, obstacle: Callable[[], str]) -> None:
        """Ask this function from now on: it returns the reason against readiness, empty for none."""
        self._obstacle = obstacle

    def obstacle(self) -> str:
        """Return why the component is not ready; empty if it is."""
        return self._obstacle()
