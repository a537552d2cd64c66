"""Runs one component of `slipway up` in this process, which the zygote of components has forked.

Exit codes: 0 after SIGTERM; 1 for controllers that lead no more; `restart_policy.GIVES_UP` for a
configuration that cannot run (the last line has the reason). After any other exit code the supervisor starts
it again.
"""

import argparse
import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import uvloop

from serving import errors
from serving.cli.config import snapshot
from serving.cli.config.schema import Configuration
from serving.cli.machine import logfile
from serving.data_dir import DataDir
from serving.embedded.supervisor import liveness
from serving.embedded.supervisor.restart_policy import GIVES_UP
from serving.settings import Settings
from serving.system import allocator, locks, processes, run_files

log = logging.getLogger(__name__)

Run = Callable[[DataDir, Settings], Awaitable[None]]

MODULES = {
    "api": "serving.embedded.apiserver.server",
    "node": "serving.embedded.kubelet.agent",
    "controllers": "serving.controllers.run",
    "gateway": "serving.router.gateway",
    "activator": "serving.router.activator.process",
}
"""Each has `async def run(data_dir, settings)`, which runs until cancelled."""

AUTOSCALER = "autoscaler.controller"
TUNER = ("tuner.controller", "tuner.trials.controller")
"""The controllers of the other packages join `serving.controllers.run` here, as packages meet only in the API
and at this edge."""

COLLECT_AFTER = (50_000, 50, 100)
"""Thresholds of the cycle collector. Components hold much JSON (objects, caches) without cycles; with
Python's defaults the collector walks it again and again, an eighth of the API's time at 100 services."""

ALREADY_RUNS = 75
"""Exit code where another process runs this component of this data directory (sysexits.h EX_TEMPFAIL)."""


def main(arguments: Sequence[str]) -> int:
    """Run `component NAME --data-dir DIR ...` until SIGTERM; return the exit status."""
    options = _parser().parse_args(arguments)
    data_dir = DataDir(Path(options.data_dir).absolute())
    try:
        configuration = _configuration(data_dir, options.config)
    except errors.UserError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return GIVES_UP
    logfile.of_component(options.name)
    gc.set_threshold(*COLLECT_AFTER)
    allocator.return_large_blocks()
    data_dir.run.mkdir(parents=True, exist_ok=True)
    if locks.try_lock(data_dir.run / f"{options.name}.lock") is None:
        log.info("another process runs %s of %s", options.name, data_dir.root)
        return ALREADY_RUNS
    me = processes.own_identity()
    ports = {"apiPort": configuration.api.port, "gatewayPort": configuration.gateway.port}
    run_files.write(data_dir.identity(options.name), processes.encoded(me, **ports))
    failure: BaseException | None = None
    lost: BaseException | None = None
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            run = _load(options.name, configuration)
            runner.run(_until_stopped(run, data_dir, configuration, data_dir.liveness(options.name)))
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
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slipway component")
    parser.add_argument("name", choices=sorted(MODULES))
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--config", type=Path, help="the configuration file; none: that of the running `up`")
    return parser


def _configuration(data_dir: DataDir, file: Path | None) -> Configuration:
    """Return the configuration of `file`, else of the running `up`, else of the data directory."""
    if file is None:
        with contextlib.suppress(FileNotFoundError):
            return snapshot.read(data_dir.configuration)
    from serving.cli.config.configuration import load  # noqa: PLC0415 pydantic, not needed below `up`

    return load(data_dir, file).configuration


def modules(name: str) -> tuple[str, ...]:
    """Return the modules that a component imports."""
    return (MODULES[name], *((AUTOSCALER, *TUNER) if name == "controllers" else ()))


def _load(name: str, configuration: Configuration) -> Run:
    module = importlib.import_module(MODULES[name])
    run: Run = module.run
    if name != "controllers":
        return run
    autoscaler = importlib.import_module(AUTOSCALER)
    experiments, trials = (importlib.import_module(name) for name in TUNER)
    images = configuration.runtime_images
    return lambda data_dir, settings: module.run(
        data_dir,
        settings,
        partial(autoscaler.prepared, scaling=configuration.autoscaler),
        partial(experiments.prepared, settings=configuration.tuner, images=images),
        partial(trials.prepared, settings=configuration.tuner),
    )


async def _as_task(work: Awaitable[None]) -> None:
    await work


async def _until_stopped(run: Run, data_dir: DataDir, settings: Settings, socket: Path) -> None:
    """Run until SIGTERM or SIGINT; a second signal kills the process, as by default.

    Meanwhile the supervisor gets answers on `socket`.
    """
    loop = asyncio.get_running_loop()
    work = loop.create_task(_as_task(run(data_dir, settings)))

    def stop(number: signal.Signals) -> None:
        log.info("%s: stopping", number.name)
        work.cancel()
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    async with liveness.answering(socket):
        await asyncio.wait([work])
    if not work.cancelled():
        work.result()
