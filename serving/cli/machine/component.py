"""Runs one component in this process: on one machine a fork of the zygote of components, in a Pod (with
`--health-port`) the first process of the container.

Exit codes: 0 after SIGTERM; 1 for controllers that have lost leadership; `restart_policy.GIVES_UP` for a
configuration that cannot run (the last line of the output has the reason); `ALREADY_RUNS`.
"""

import argparse
import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import uvloop

from serving import errors
from serving.cli.config import snapshot
from serving.cli.config.schema import Configuration
from serving.cli.machine import health, logfile, pod_sockets
from serving.cli.machine.components import DECLARATIONS, Component
from serving.data_dir import DataDir
from serving.embedded.supervisor import liveness
from serving.embedded.supervisor.restart_policy import GIVES_UP
from serving.settings import Settings
from serving.system import allocator, processes
from serving.system.files import locks, run_files
from serving.system.network import http_pages
from serving.system.network.kept_sockets import KeptSockets
from serving.system.readiness import Readiness

log = logging.getLogger(__name__)

Run = Callable[[DataDir, Settings], Awaitable[None]]
"""The work of a component, which lasts until it is cancelled, or until a Pod's component has drained."""

COLLECT_AFTER = (50_000, 50, 100)
"""Thresholds of the cycle collector, for `gc.set_threshold`. Components hold much JSON (objects, caches)
without cycles; with Python's defaults the collector walks it again and again, an eighth of the API's time at
100 services."""

ALREADY_RUNS = 75
"""Exit code where another process runs this component of this data directory (sysexits.h EX_TEMPFAIL)."""


def main(arguments: Sequence[str], kept_descriptors: Sequence[int] = ()) -> int:
    """Run `component NAME --data-dir DIR ...` until SIGTERM; return the exit code.

    Args:
        arguments: the command line after `component`.
        kept_descriptors: of the kept sockets, which the last process of this component held.
    """
    options = _options(arguments)
    is_in_pod = options.health_port is not None
    if is_in_pod:  # the kernel ignores a signal that the first process of a container does not handle
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    component = DECLARATIONS[options.name]
    data_dir = DataDir(Path(options.data_dir).absolute())
    try:
        configuration = snapshot.in_effect(data_dir, options.config)
        logfile.of_component(options.name)
    except errors.UserError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return GIVES_UP
    gc.set_threshold(*COLLECT_AFTER)
    allocator.return_large_blocks()
    data_dir.run.mkdir(parents=True, exist_ok=True)
    if locks.try_lock(data_dir.run / f"{options.name}.lock") is None:
        log.info("another process runs %s of %s", options.name, data_dir.root)
        return ALREADY_RUNS
    identity = processes.own_identity()
    ports = {"apiPort": configuration.api.port, "gatewayPort": configuration.gateway.port}
    stopping = asyncio.Event() if is_in_pod and component.drains else None
    readiness = Readiness()
    run_files.write(data_dir.identity(options.name), processes.encoded(identity, **ports))
    failure: BaseException | None = None
    lost: BaseException | None = None
    try:
        with (
            contextlib.closing(KeptSockets(kept_descriptors)) as kept,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            # Before `liveness.answering`: an answer without sockets would make the keeper close its copies.
            if is_in_pod and component.kept_by:
                runner.run(pod_sockets.recover(data_dir.liveness(component.kept_by), kept))
            run = _load(component, configuration, kept, readiness, stopping)
            supervised = liveness.answering(data_dir.liveness(options.name), kept.to_pass)
            answering = _answering(supervised, readiness, configuration.pages.host, options.health_port)
            # The components whose sockets this process keeps while they do not run.
            owners = [
                name for name, other in DECLARATIONS.items() if is_in_pod and other.kept_by == options.name
            ]
            keepers = [pod_sockets.copies_kept(data_dir.liveness(owner), kept) for owner in owners]
            work = partial(run, data_dir, configuration)
            runner.run(_until_stopped(work, [answering, *keepers], stopping))
    except* errors.LeadershipLost as group:
        lost = _first(group)
    except* errors.UserError as group:
        failure = _first(group)
    if lost is not None:
        log.error("stopping: %s", lost)
        return 1
    if failure is not None:
        print(f"error: {failure}", file=sys.stderr, flush=True)
        return GIVES_UP
    return 0


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first exception of a group and of the groups in it that is no group."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slipway component")
    parser.add_argument("name", choices=sorted(DECLARATIONS))
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--config", type=Path, help="the configuration file; none: that of the running `up`")
    parser.add_argument(
        "--health-port",
        type=int,
        metavar="PORT",
        help=f"in a Pod: the port of {health.LIVE} and {health.READY}, on the address `pages.host`; "
        "none: only the supervisor of `up` asks",
    )
    options = parser.parse_args(arguments)
    if options.health_port is not None:
        if not DECLARATIONS[options.name].runs_in_pods:
            in_pods = sorted(name for name, component in DECLARATIONS.items() if component.runs_in_pods)
            parser.error(f"--health-port: {options.name} runs in no Pod, only {', '.join(in_pods)}")
        if not 0 < options.health_port < 65_536:
            parser.error("--health-port: must be a port from 1 to 65535")
    return options


def _load(
    component: Component,
    configuration: Configuration,
    kept: KeptSockets,
    readiness: Readiness,
    stopping: asyncio.Event | None,
) -> Run:
    """Return the work of a component: its function `run_in_pod` if `stopping` is given, else `run`.

    `Component` describes both functions; after the event `stopping` the work drains and ends.
    """
    module = importlib.import_module(component.module)
    by_name = {"kept": kept} if component.takes_kept_sockets else {}
    if stopping is not None:
        return lambda data_dir, settings: module.run_in_pod(
            data_dir, settings, readiness, stopping, **by_name
        )
    by_position: list[object] = []
    if component.definitions:
        by_position.append(importlib.import_module(component.definitions).DEFINITIONS)
    if component.takes_readiness:
        by_position.append(readiness)
    # The controllers that `serving.controllers` may not import: it gets them as arguments.
    by_position += [
        partial(importlib.import_module(controller.module).prepared, **controller.options(configuration))
        for controller in component.joined
    ]
    return lambda data_dir, settings: module.run(data_dir, settings, *by_position, **by_name)


async def _as_coroutine(work: Awaitable[None]) -> None:
    """Await `work`: `create_task` takes coroutines alone."""
    await work


@contextlib.asynccontextmanager
async def _answering(
    supervised: AbstractAsyncContextManager[None], readiness: Readiness, host: str, port: int | None
) -> AsyncIterator[None]:
    """Within the block, answer the supervisor, and a kubelet if there is a health port.

    Args:
        supervised: the context of `liveness.answering`.
        readiness: of the component.
        host: address of the health port.
        port: the health port; None without a kubelet.

    Raises:
        errors.UserError: the port cannot be bound.
    """
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(supervised)
        if port is not None:
            try:
                await stack.enter_async_context(http_pages.serving(health.pages(readiness), host, port))
            except OSError as error:
                raise errors.UserError(f"--health-port {port} on {host}: {error.strerror}") from error
        yield


async def _until_stopped(
    work: Callable[[], Awaitable[None]],
    around: Sequence[AbstractAsyncContextManager[None]],
    stopping: asyncio.Event | None,
) -> None:
    """Call `work`, and await its result, within the contexts `around`.

    SIGTERM or SIGINT cancels the work, a second signal kills the process.

    With `stopping` a signal sets this event instead, and the work drains and ends by itself. A second signal
    then changes nothing: kubelet kills a container that takes longer than the Pod's grace period.
    """
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as stack:
        for context in around:
            await stack.enter_async_context(context)
        task = loop.create_task(_as_coroutine(work()))

        def stop(number: signal.Signals) -> None:
            log.info("%s: stopping", number.name)
            if stopping is not None:
                stopping.set()
                return
            task.cancel()
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number)
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
