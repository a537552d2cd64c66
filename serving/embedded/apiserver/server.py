"""The embedded API server as a process: files, socket, certificates, and a shutdown that ends all watches."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Iterable
from functools import partial

import uvicorn

from serving import clock, errors
from serving.data_dir import DataDir
from serving.embedded.apiserver import access, certificates
from serving.embedded.apiserver.connection import ApiConnection, ConnectionMemory, SilentConnections
from serving.embedded.apiserver.handlers import dispatcher
from serving.embedded.apiserver.handlers.dispatcher import Handlers
from serving.embedded.apiserver.handlers.nodes import Nodes
from serving.embedded.apiserver.handlers.objects import ObjectHandlers
from serving.embedded.apiserver.handlers.other_resources import OtherResources
from serving.embedded.apiserver.handlers.pod_usage import PodUsage
from serving.embedded.apiserver.handlers.request_metrics import RequestMetrics
from serving.embedded.apiserver.nodes.node_proxy import NodeProxy
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.garbage_collector import GarbageCollector
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.embedded.apiserver.storage.watches import Hub
from serving.embedded.apiserver.storage.writer import ObjectWriter
from serving.resources.definitions import Definition
from serving.settings import BACKLOG, ApiSettings, Settings
from serving.system.files import open_files
from serving.system.network import sockets
from serving.system.network.asgi_server import AsgiServer

log = logging.getLogger(__name__)

_DESCRIPTORS = 8192
"""Most open files and connections; a connection takes up to 60 KB of memory.

Clients without the token can hold as many connections as the bounds of handshakes and of silent connections
allow, 1,536 together. With fewer descriptors, as on many systems by default, they could take all. At the
limit the server accepts no connection for a second, and tries again.
"""


async def run(data_dir: DataDir, settings: Settings, custom: Iterable[Definition]) -> None:
    """Serve Kubernetes' kinds and the custom ones of these definitions until cancelled.

    Raises:
        errors.UserError: the port is in use, or the data directory cannot be used.
    """
    api = settings.api
    _prepare(data_dir)
    open_files.set_limit(_DESCRIPTORS)
    # Clients without the token could fill the log: uvicorn writes a line for each malformed request.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    listener = _listen(api)
    try:
        epoch = int(clock.now().timestamp() * 1000)  # milliseconds since 1970; only for a new database
        database = Database(
            data_dir.database, epoch=epoch, history=api.watch_history, history_bytes=api.watch_history_bytes
        )
        store = ObjectStore(database, StoredKinds(custom))
        try:
            await _serve(store, listener, data_dir, settings)
        finally:
            await store.close()
    finally:
        listener.close()


async def _serve(store: ObjectStore, listener: socket.socket, data_dir: DataDir, settings: Settings) -> None:
    api = settings.api
    writer, hub = ObjectWriter(store), Hub(store)
    await writer.start()
    token = access.token(data_dir.token)
    proxy = NodeProxy(data_dir, settings.node.name)
    handlers = Handlers(
        objects=ObjectHandlers(writer, hub, api, data_dir),
        proxy=proxy,
        nodes=Nodes(store, hub, proxy, api),
        usage=PodUsage(store, proxy),
        others=OtherResources(store, api),
        metrics=RequestMetrics(store),
    )
    app = access.TokenGate(dispatcher.build(store.kinds, handlers), token)
    tls = _Tls(data_dir, api, listener.getsockname()[1], token)
    tls.start()
    config = uvicorn.Config(
        app,
        loop="none",
        http=partial(ApiConnection, SilentConnections(), ConnectionMemory()),  # type: ignore[arg-type]
        lifespan="off",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=api.keep_alive_seconds,
        timeout_graceful_shutdown=api.stop_seconds,
        backlog=BACKLOG,
        ssl_certfile=str(tls.files.certificate),
        ssl_keyfile=str(tls.files.key),
    )
    config.load()
    assert config.ssl is not None
    config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    server = AsgiServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    helpers = [
        asyncio.create_task(tls.keep_fresh(config.ssl)),
        asyncio.create_task(GarbageCollector(writer, api).run()),
    ]
    log.info("serving on https://%s:%d", api.host, listener.getsockname()[1])
    try:
        # The tasks run until they are cancelled; the first one that fails ends the server.
        done, _ = await asyncio.wait([serving, *helpers], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        hub.stop()
        server.stop()
        for task in helpers:
            task.cancel()
        await asyncio.gather(serving, *helpers, return_exceptions=True)


def _prepare(data_dir: DataDir) -> None:
    """Create the data directory, which only its owner may read."""
    try:
        data_dir.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        data_dir.root.chmod(0o700)
    except OSError as error:
        message = f"cannot use {data_dir.root}: {error.strerror}; choose another with --data-dir"
        raise errors.UserError(message) from error


def _listen(api: ApiSettings) -> socket.socket:
    """Return a listening socket; it shares its port with the socket by which `up` keeps it for this user.

    Raises:
        errors.UserError: the port is in use, or cannot be listened on.
    """
    listener = socket.socket(sockets.family(api.host), socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sockets.share(listener)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        if api.port:
            sockets.try_shared_port(api.host, api.port)
        listener.bind((api.host, api.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        endpoint = f"{api.host}:{api.port}"
        if error.errno == errno.EADDRINUSE:
            message = f"{endpoint} is in use by another process: stop that one, or choose another --port"
        else:
            message = f"cannot listen on {endpoint}: {error.strerror}; choose another --port or address"
        raise errors.UserError(message) from error
    listener.setblocking(False)  # noqa: FBT003 the socket module's own signature
    return listener


class _Tls:
    """Renews the certificate while the server runs; new connections get the new one."""

    def __init__(self, data_dir: DataDir, api: ApiSettings, port: int, token: str) -> None:
        self._data_dir, self._api, self._port, self._token = data_dir, api, port, token
        self._is_loaded = False
        """Whether the server has loaded the newest certificate."""
        self._has_written_kubeconfig = False
        """Whether the kubeconfig has the newest CA."""
        self.files = certificates.files(data_dir.tls)

    def start(self) -> None:
        """Renew the certificate if it is due and the disk has room, and write the kubeconfig.

        Raises:
            errors.UserError: there is no certificate, and none can be written.
        """
        try:
            self._renew()
        except OSError as error:
            if not certificates.can_serve(self._data_dir.tls, clock.now()):
                message = f"no certificate can be written to {self._data_dir.tls}: {error.strerror}"
                raise errors.UserError(message) from error
            log.warning("the certificate could not be renewed, retrying: %s", error)
        self._write_kubeconfig()

    def _renew(self) -> None:
        if certificates.ensure(self._data_dir.tls, self._api.host, self._api, clock.now()):
            self._is_loaded = self._has_written_kubeconfig = False

    def _write_kubeconfig(self) -> None:
        loopback_of_wildcard = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 compared
        host = loopback_of_wildcard.get(self._api.host, self._api.host)
        access.write_kubeconfig(
            self._data_dir, host=host, port=self._port, ca=self.files.ca.read_bytes(), secret=self._token
        )
        self._has_written_kubeconfig = True

    async def keep_fresh(self, context: ssl.SSLContext) -> None:
        """Renew the certificate when it is due, until cancelled; `context` has loaded that of `start`."""
        self._is_loaded = True
        while True:
            await asyncio.sleep(self._api.renew_check_seconds)
            try:
                self._renew()
                if not self._is_loaded:
                    context.load_cert_chain(str(self.files.certificate), str(self.files.key))
                    self._is_loaded = True
                    log.info("the server's certificate was renewed")
            except OSError as error:
                log.warning("the certificate could not be renewed, retrying: %s", error)
            try:
                if self._is_loaded and not self._has_written_kubeconfig:
                    self._write_kubeconfig()
            except OSError as error:  # the certificate in service does not depend on it
                log.warning("the kubeconfig could not be written, retrying: %s", error)
