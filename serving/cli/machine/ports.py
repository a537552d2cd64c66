"""Chooses the ports of `up`: those of running components, else configured ones, else the last `up`'s, else
the defaults.
"""

import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from serving import errors
from serving.data_dir import DataDir
from serving.settings import Settings
from serving.system import processes
from serving.system.files import run_files
from serving.system.network import sockets

log = logging.getLogger(__name__)


class Ports(NamedTuple):
    """The ports of the API and of the gateway's public listener."""

    api: int
    gateway: int


def choose(data_dir: DataDir, settings: Settings, api: int | None, gateway: int | None) -> Ports:
    """Return the ports, and store them for the next `up` of this directory.

    Args:
        data_dir: has the ports of the last `up`, and the records of running components.
        settings: the configuration, with the hosts and the default ports.
        api: the port that an option or the configuration gives; 0 for a free port, None if neither gives one.
        gateway: the same for the gateway.

    Raises:
        errors.UserError: another program has a port, nothing can listen on a host, or a running component has
            another port than the given one.
    """
    stored = _stored(data_dir)
    fallback = stored or Ports(settings.api.port, settings.gateway.port)
    ports = Ports(
        _choose(data_dir, "api", "--port", given=api, fallback=fallback.api, host=settings.api.host),
        _choose(
            data_dir,
            "gateway",
            "--gateway-port",
            given=gateway,
            fallback=fallback.gateway,
            host=settings.gateway.host,
        ),
    )
    if ports.api == ports.gateway:
        raise errors.UserError(f"--port and --gateway-port are both {ports.api}; they must differ")
    if stored is not None and ports.api != stored.api:
        # A component that read the old kubeconfig before the API wrote the new one would not reach the API.
        data_dir.kubeconfig.unlink(missing_ok=True)
    run_files.write(data_dir.ports, orjson.dumps(ports._asdict()))
    return ports


@contextlib.contextmanager
def reserved(settings: Settings) -> Iterator[None]:
    """Keep other users from the ports of the API and the gateway while the block runs.

    Between the death of a component and its restart another user could bind its port, and answer its clients.
    A port of an IPv4 address needs a second socket: a socket at `::` gets connections to IPv4 addresses too.
    """
    with contextlib.ExitStack() as stack:
        for section in (settings.api, settings.gateway):
            try:
                stack.enter_context(sockets.reserve(section.host, section.port))
                if sockets.family(section.host) == socket.AF_INET:
                    stack.enter_context(sockets.keep_all_of_ipv6(section.port) or contextlib.nullcontext())
            # A component of an older release holds the port without sharing it, or a socket at `::` has it.
            except OSError as error:
                log.warning(
                    "port %d cannot be reserved (%s): another user can take it while its component restarts",
                    section.port,
                    error.strerror,
                )
        yield


def _stored(data_dir: DataDir) -> Ports | None:
    """Return the ports of the last `up` of this directory; None if there are none."""
    with contextlib.suppress(FileNotFoundError, orjson.JSONDecodeError, TypeError):
        return Ports(**orjson.loads(data_dir.ports.read_bytes()))
    return None


def _choose(
    data_dir: DataDir, component: str, option: str, *, given: int | None, fallback: int, host: str
) -> int:
    """Return the port of one component: of the running one, else `given`, else `fallback`."""
    record = processes.read_running(data_dir.identity(component))
    if record is not None:
        _, details = record  # `component.main` records both ports with its identity
        current = int(details[f"{component}Port"])
        if given not in (None, 0, current):
            raise errors.UserError(
                f"{component} of {data_dir.root} already runs on port {current}; leave out {option}, "
                f"or stop it first with `slipway down --data-dir {data_dir.root}`"
            )
        return current
    port = fallback if given is None else given
    try:
        return sockets.try_port(host, port)
    except PermissionError as error:
        raise errors.UserError(
            f"this user cannot use port {port}; choose one above 1023 with {option}"
        ) from error
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise errors.UserError(
                f"{component}.host: must be an address on which this machine can listen, got {host!r}: "
                f"{error.strerror}"
            ) from error
        if component == "gateway" and given in (None, fallback):
            return port  # perhaps our Envoy, which outlives its gateway; the gateway checks that it is ours
        raise errors.UserError(
            f"port {port} on {host} is in use; choose another with {option} (0 picks a free one)"
        ) from error
