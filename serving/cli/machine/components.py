"""The components of `slipway up`: the module of each, and the arguments of its function `run`.

Imports no component: `component` runs one, and the zygote imports them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serving.cli.config.schema import Configuration


@dataclass(frozen=True)
class JoinedController:
    """A controller of another package: packages meet only in the API and at this edge."""

    module: str
    """Has `prepared(data_dir, settings, watches, **options)`."""
    options: Callable[[Configuration], Mapping[str, object]]


@dataclass(frozen=True)
class Component:
    """The declaration of a component."""

    module: str
    """Has `async def run(data_dir, settings, ...)`, which runs until cancelled."""
    takes_kept_sockets: bool = False
    """`run` takes the sockets of its predecessor as `kept`."""
    takes_readiness: bool = False
    """`run` takes its readiness as its third argument."""
    joined: tuple[JoinedController, ...] = ()
    """Controllers that `run` takes as its last arguments."""
    runs_in_pods: bool = False
    """It runs in the Pods of a cluster, where a kubelet asks for its health."""
    drains: bool = False
    """It has requests in flight, with which a Pod must not end. In a Pod its `async def run_in_pod(data_dir,
    settings, readiness, stopping)` runs until they have ended after the event."""
    kept_by: str = ""
    """The component of its Pod that keeps its sockets while it does not run."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that it imports."""
        return (self.module, *(controller.module for controller in self.joined))


DECLARATIONS: Mapping[str, Component] = {
    "api": Component("serving.embedded.apiserver.server"),
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
