"""`slipway up` and `slipway down`: run all components of one machine in the foreground, and stop them."""

import asyncio
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer

from serving import clock, errors
from serving.cli.config import snapshot
from serving.cli.config.configuration import load
from serving.cli.exits import Exit
from serving.cli.machine import logfile, ports
from serving.cli.options import ConfigFile, OwnDataDir
from serving.cli.session import answers
from serving.data_dir import DataDir
from serving.embedded.supervisor import supervisor
from serving.embedded.supervisor.scrape_targets import ScrapeTargets
from serving.resources import names
from serving.settings import DEFAULTS, Settings
from serving.system import processes
from serving.system.files import open_files, run_files
from serving.system.isolation.seccomp import system_call_filter
from serving.system.network import addresses, sockets
from serving.system.process_exit import has_ended_within

if TYPE_CHECKING:
    from serving.router.envoy.process.envoy_process import EnvoyProcess

Cleanup = Callable[[DataDir, Settings], Awaitable[None]]
ENVOY, REPLICAS = "Envoy", "replicas"
"""The processes that run beside the components and outlive them, as named in messages."""
GATEWAY_SECONDS = 2.0
"""Longest wait for one answer of the gateway, which takes milliseconds."""


Port = Annotated[
    int | None,
    typer.Option(
        help="Port of the API; 0 picks a free one.  "
        "[default: the configured one, else last time's, else 7443]",
        metavar="N",
        min=0,
        max=65535,
    ),
]
GatewayPort = Annotated[
    int | None,
    typer.Option(
        help="Port of the gateway; 0 picks a free one.  [default: the configured one, else last time's, "
        "else 8080]",
        metavar="N",
        min=0,
        max=65535,
    ),
]
Host = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Address of the API, as `api.host` of the configuration. "
        "Anyone who reaches it and has the token can run commands.",
    ),
]
GatewayHost = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Address of the gateway, as `gateway.host` of the configuration."),
]
Prometheus = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The Prometheus of metrics that name none, and of the load of the last weeks, as "
        "`controllers.prometheus` of the configuration.",
    ),
]


def up(
    data_dir: OwnDataDir = None,
    config_file: ConfigFile = None,
    port: Port = None,
    gateway_port: GatewayPort = None,
    host: Host = None,
    gateway_host: GatewayHost = None,
    prometheus: Prometheus = None,
) -> None:
    """Run everything on this machine until Ctrl-C."""
    options = {
        "api.port": ("--port", port),
        "api.host": ("--host", host),
        "gateway.port": ("--gateway-port", gateway_port),
        "gateway.host": ("--gateway-host", gateway_host),
        "controllers.prometheus": ("--prometheus", prometheus),
    }
    where = DataDir.named(data_dir)
    given_options = {path: (flag, value) for path, (flag, value) in options.items() if value is not None}
    resolved = load(where, config_file, given_options)
    configured = resolved.configuration
    _refuse_long_path(where)
    given_ports = {path: port for path, port in _ports(configured).items() if path in resolved.sources}
    # With a umask of 0 others could write the files that this process and the components create.
    os.umask(os.umask(0o022) | 0o022)
    with supervisor.owned(where):
        logfile.of_up(where)
        api_port, public_port = given_ports.get("api.port"), given_ports.get("gateway.port")
        chosen = ports.choose(where, configured, api_port, public_port)
        final = replace(
            configured,
            api=replace(configured.api, port=chosen.api),
            gateway=replace(configured.gateway, port=chosen.gateway),
        )
        snapshot.write(where.configuration, final)
        if problem := run_files.why_not_writable(where.run):
            print(
                f"{where.root}: {problem}. What runs is served, and objects can be read; nothing is changed "
                "or started until there is room.",
                file=sys.stderr,
            )
        with ports.reserved(final):
            code = asyncio.run(_foreground(where, final))
    if code:
        sys.exit(code)


def _refuse_long_path(where: DataDir) -> None:
    """Refuse a directory in which the Unix socket of a Pod would have too long a path for Envoy."""
    longest = os.fsencode(where.pod_sockets / names.pod_socket_name("127.255.255.255", 65535))
    most = len(os.fsencode(where.root)) + sockets.SOCKET_PATH_BYTES - len(longest)
    if len(longest) > sockets.SOCKET_PATH_BYTES:
        raise errors.UserError(
            f"--data-dir {where.root}: must be at most {most} bytes long, as it has Unix sockets, "
            f"got {len(os.fsencode(where.root))}"
        )


def _ports(settings: Settings) -> dict[str, int]:
    """Return the configured ports by the paths of their settings."""
    return {"api.port": settings.api.port, "gateway.port": settings.gateway.port}


def down(data_dir: OwnDataDir = None) -> None:
    """Stop what `slipway up` started.

    Also after `up` itself was killed.
    """
    where = DataDir.named(data_dir)
    try:
        is_there = where.root.is_dir()
        record = processes.read_identity(where.identity("up"))  # (process identity, other fields)
    except PermissionError as error:
        message = f"{where.root} belongs to another user ({error.strerror}), who can stop what runs there"
        raise errors.UserError(message) from error
    if not is_there:
        raise errors.UserError(f"there is nothing in {where.root}; name the directory with --data-dir")
    patience = 0.0
    if has_run := record is not None and processes.send_signal(record[0], signal.SIGTERM):
        print(f"Stopping slipway (pid {record[0].pid}) ...", flush=True)
        if not asyncio.run(has_ended_within(record[0], _longest_stop(where))):
            raise errors.UserError(f"pid {record[0].pid} does not stop; a second `slipway down` forces it")
        patience = _longest_stop(where)  # another `down` may be stopping the rest
    try:
        # A forced or killed `up` leaves processes; after any other end of it there are none.
        with supervisor.owned(where, command="down", patience=patience):
            _stop_what_is_left(where, are_expected=not has_run)
    except supervisor.OwnedByUp:
        if not has_run:
            raise
        # Another `up` has begun since, and has adopted the processes that were left.
    print("Stopped.")


def _stop_what_is_left(where: DataDir, *, are_expected: bool) -> None:
    """Stop the processes of an earlier `up`; print what they are, without any too if some are expected."""
    settings = _last_settings(where)
    keeper = supervisor.Supervisor(where, (), settings.supervisor)
    adopted = keeper.adopt()
    if adopted or are_expected:
        print(f"Stopping what an earlier up left: {', '.join(adopted) or 'no component'} ...", flush=True)
    asyncio.run(_stop(keeper, where, settings))


def _longest_stop(where: DataDir) -> float:
    """Return how many seconds `_stop` may take: Pods and Envoy end gracefully beside the components."""
    from serving.embedded.kubelet import shutdown  # noqa: PLC0415 not needed by an `up` that starts

    settings = _last_settings(where)
    components = 3 * settings.supervisor.stop_seconds  # three groups, one after the other
    return components + settings.gateway.drain_seconds + shutdown.longest_grace(where, settings)


def _last_settings(where: DataDir) -> Settings:
    """Return the settings of the last `up`."""
    with contextlib.suppress(FileNotFoundError):
        return snapshot.read(where.configuration)
    return DEFAULTS


async def _foreground(where: DataDir, final: Settings) -> int:
    """Supervise until a signal, then stop everything; return the exit code."""
    open_files.set_limit()  # this process keeps the node's sockets while the node is dead
    keeper = supervisor.Supervisor(where, ["--data-dir", str(where.root)], final.supervisor)
    if adopted := keeper.adopt():
        print(f"Adopted what was left running: {', '.join(adopted)}.", flush=True)
    stop, forced = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        (forced if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, signalled)
    keeping = loop.create_task(keeper.run())
    waiting = loop.create_task(stop.wait())
    greeting = loop.create_task(_greet(keeper, where, final))
    listing = loop.create_task(ScrapeTargets(where).run())
    try:
        await asyncio.wait([keeping, waiting, greeting], return_when=asyncio.FIRST_COMPLETED)
        greeting_failed = greeting.done() and greeting.exception() is not None
        if not greeting_failed:
            await asyncio.wait([keeping, waiting], return_when=asyncio.FIRST_COMPLETED)
        failure = next((t.exception() for t in (keeping, greeting) if t.done() and t.exception()), None)
    finally:
        tasks = (keeping, waiting, greeting, listing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    spared: frozenset[str] = frozenset()
    if failure is not None and not keeper.proven:  # a failed start stops the processes of this `up` alone
        spared = _adopted(keeper, where, final)
    code = await _stop_or_force(keeper, where, final, forced, spared)
    if failure is not None:
        raise failure
    return code


def _adopted(keeper: supervisor.Supervisor, where: DataDir, final: Settings) -> frozenset[str]:
    """Return the processes of an earlier `up` that still run: names of components, `ENVOY` and `REPLICAS`.

    While earlier replicas run, an Envoy that has replaced the earlier one counts too, as it serves them.
    """
    from serving.embedded.kubelet import shutdown  # noqa: PLC0415 not needed by an `up` that starts
    from serving.router.envoy.process.envoy_process import EnvoyProcess  # noqa: PLC0415 the same

    own = processes.own_identity()
    adopted = set(keeper.adopted())
    if any(process.is_older_than(own) for process in shutdown.running(where)):
        adopted.add(REPLICAS)
    envoy = EnvoyProcess(where, final.gateway).running()
    if envoy is not None and (REPLICAS in adopted or envoy.process.is_older_than(own)):
        adopted.add(ENVOY)
    return frozenset(adopted)


async def _stop_or_force(
    keeper: supervisor.Supervisor,
    where: DataDir,
    final: Settings,
    forced: asyncio.Event,
    spared: frozenset[str],
) -> int:
    """Stop everything but the processes in `spared`, which the next `up` adopts; return the exit code.

    `forced` is the second signal: it kills the components, without draining.
    """
    if spared:
        print(
            f"Stopping what this up has started. What it adopted runs on: {', '.join(sorted(spared))}. "
            f"`slipway down --data-dir {where.root}` stops that too.",
            file=sys.stderr,
        )
    else:
        print("Stopping: draining the gateway, then replicas and components (again to force) ...", flush=True)
    stopping = asyncio.ensure_future(_stop(keeper, where, final, spared))
    force = asyncio.ensure_future(forced.wait())
    await asyncio.wait([stopping, force], return_when=asyncio.FIRST_COMPLETED)
    force.cancel()
    if stopping.done():
        stopping.result()
        print("Stopped.", flush=True)
        return Exit.OK
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stopping
    keeper.kill(*(name for name in supervisor.COMPONENTS if name not in spared))
    if not spared:
        ScrapeTargets(where).remove()
    print(f"Forced. What is left is stopped by `slipway down --data-dir {where.root}`.", file=sys.stderr)
    return Exit.FAILED


async def _stop(
    keeper: supervisor.Supervisor, where: DataDir, final: Settings, spared: frozenset[str] = frozenset()
) -> None:
    """Stop controllers, gateway and activator first, then the node with its Pods, and last the API.

    `spared` has the names of the components that run on, and `ENVOY` and `REPLICAS` if these do.
    """
    await keeper.stop(*{"controllers", "gateway", "activator"} - spared)
    if ENVOY not in spared:
        await _cleanup("serving.router.gateway")(where, final)
    await keeper.stop(*{"node"} - spared)
    if REPLICAS not in spared:
        await _cleanup("serving.embedded.kubelet.shutdown")(where, final)
    await keeper.stop(*{"api"} - spared)
    if not spared:
        ScrapeTargets(where).remove()


def _cleanup(module: str) -> Cleanup:
    """Return the function of a component's module that ends the processes which outlive the component."""
    stop_everything: Cleanup = importlib.import_module(module).stop_everything
    return stop_everything


async def _greet(keeper: supervisor.Supervisor, where: DataDir, final: Settings) -> None:
    """Wait until the API answers and the gateway knows the services, then print their addresses."""
    from serving.router.envoy.process.envoy_process import EnvoyProcess  # noqa: PLC0415 imported while components start

    envoy = EnvoyProcess(where, final.gateway)
    deadline = clock.monotonic() + final.supervisor.ready_seconds
    while not await _is_ready(where, envoy, final):
        if clock.monotonic() > deadline:
            raise errors.UserError(
                f"not ready after {final.supervisor.ready_seconds:.0f} s; the logs are in {where.logs}"
            )
        await asyncio.sleep(supervisor.POLL_SECONDS)
    keeper.proven = True  # from now on the supervisor restarts every component that ends
    print(f"Slipway is up (pid {os.getpid()}). Ctrl-C stops it.")
    print(f"  gateway   http://{addresses.authority(final.gateway.host, final.gateway.port)}")
    print(f"  api       https://{addresses.authority(final.api.host, final.api.port)}")
    print(f"  kubectl   export KUBECONFIG={where.kubeconfig}")
    if restriction := isolation():
        print(f"  isolation {restriction} (docs/security.md)")
    print(f"  logs      {where.logs}", flush=True)


async def _is_ready(where: DataDir, envoy: "EnvoyProcess", final: Settings) -> bool:
    """Whether the API answers and the gateway serves; False while no descriptor or memory is left to ask."""
    try:
        return (
            await answers(where.kubeconfig)
            and envoy.running() is not None  # else another program listens on the gateway's port
            and await _serves(final.gateway.host, final.gateway.port)
        )
    except OSError:
        return False


def isolation() -> str:
    """Return how the isolation of containers is restricted on this machine; empty if it is complete."""
    not_filtered = system_call_filter().missing
    if os.geteuid() == 0:
        return f"partial: {not_filtered}" if not_filtered else ""
    return f"none: containers run as this user, and are not kept apart{not_filtered and f'; {not_filtered}'}"


async def _serves(host: str, port: int) -> bool:
    """Whether the gateway at this address knows the services: before, it answers 503, or not at all."""
    import aiohttp  # noqa: PLC0415 imported while components start

    url = f"http://{addresses.authority(host, port)}/"
    timeout = aiohttp.ClientTimeout(total=GATEWAY_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            return answer.status != HTTPStatus.SERVICE_UNAVAILABLE
    except (aiohttp.ClientError, TimeoutError):
        return False
