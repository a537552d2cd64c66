"""The components of `slipway up`: the module of each, and the arguments of its function `run`.

This module imports no component: `component` runs one, and the zygote imports them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serving.cli.config.schema import Configuration


@dataclass(frozen=True)
class JoinedController:
    """A controller of `autoscaler` or `tuner`, which runs in the component `controllers`.

    `serving.controllers` imports neither package, as both import `serving`: it gets the controllers as
    arguments.
    """

    module: str
    """Has the async context manager `prepared`, which yields the controller. Its first three arguments are
    passed by position: data directory, settings of controllers, watches."""
    options: Callable[[Configuration], Mapping[str, object]]
    """Returns the keyword arguments of `prepared`."""


@dataclass(frozen=True)
class Component:
    """The declaration of a component."""

    module: str
    """Has `async def run(data_dir, settings, ...)`, which runs until cancelled."""
    takes_kept_sockets: bool = False
    """`run` takes the keyword argument `kept`, a `KeptSockets`, which begins with the sockets that the
    component's previous process used."""
    definitions: str = ""
    """The module whose table `DEFINITIONS`, of custom kinds, `run` takes as its third argument. A name, as
    the module imports pydantic."""
    takes_readiness: bool = False
    """`run` takes a `Readiness` as its third argument."""
    joined: tuple[JoinedController, ...] = ()
    """Controllers that `run` takes as its last arguments."""
    runs_in_pods: bool = False
    """The component runs in the Pods of a cluster, where a kubelet asks for its health."""
    drains: bool = False
    """The component has requests in flight, which a Pod's end must not break. In a Pod `async def
    run_in_pod(data_dir, settings, readiness, stopping)` runs in place of `run`: after the event `stopping` it
    ends once the requests have ended."""
    kept_by: str = ""
    """The component that, in a Pod, keeps this component's sockets while this one does not run."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that the component's process imports before its work."""
        tables = (self.definitions,) if self.definitions else ()
        return (self.module, *tables, *(controller.module for controller in self.joined))


DECLARATIONS: Mapping[str, Component] = {
    "api": Component("serving.embedded.apiserver.server", definitions="serving.resources.catalog"),
    "node": Component("serving.embedded.kubelet.agent", takes_kept_sockets=True),
    "controllers": Component(
        "serving.controllers.run",
        takes_readiness=True,
        joined=(
            JoinedController(
                "autoscaler.controller",
                lambda configuration: {
                    "scaling": configuration.autoscaler,
                    "host": configuration.pages.host,
                    "hold_seconds": configuration.activator.deadline_seconds,
                },
            ),
            JoinedController(
                "tuner.controller",
                lambda configuration: {
                    "settings": configuration.tuner,
                    "images": configuration.runtime_images,
                    "volume": configuration.models.volume,
                },
            ),
            JoinedController(
                "tuner.trials.controller", lambda configuration: {"settings": configuration.tuner}
            ),
        ),
        runs_in_pods=True,
    ),
    "gateway": Component(
        "serving.router.gateway",
        takes_kept_sockets=True,
        runs_in_pods=True,
        drains=True,
        kept_by="activator",
    ),
    "activator": Component("serving.router.activator.process", runs_in_pods=True, drains=True),
}
