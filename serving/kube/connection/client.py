"""Requests to the API: JSON dictionaries in and out, exceptions for error responses."""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
import yaml
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from serving import clock, errors
from serving.kube.connection import answers, hangs, refusals
from serving.kube.connection import kubeconfig as kube_config
from serving.kube.connection.kubernetes_aio import Configuration, config
from serving.kube.connection.pool import ConnectionPool
from serving.objects import Object
from serving.resources.kinds import Kind, check_path
from serving.resources.kubernetes.patch_types import APPLY_PATCH, JSON_PATCH, MERGE_PATCH
from serving.system.network import http_headers

log = logging.getLogger(__name__)

REQUEST_SECONDS = 30.0
"""Longest request of a component; a webhook of a cluster may take 30 s."""
STRICT = {"fieldValidation": "Strict"}
"""The server refuses unknown fields; by default kube-apiserver drops them with a warning."""
KEEP_SECONDS = 10.0
"""Seconds between the requests that keep a connection open: aiohttp closes one that was idle for 15 s."""
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Token of a Pod's service account; the certificate authority of the API is beside it."""
_AUTHORITY = _TOKEN.with_name("ca.crt")
WATCH_BUFFER_BYTES = 2 * 1024 * 1024
"""aiohttp takes lines of a watch up to twice this size, by default up to half a MiB; etcd stores objects of
1.5 MiB."""
CONFIG_SECONDS = 0.2
"""Seconds between tries to read a kubeconfig that does not exist yet."""


class Listing(NamedTuple):
    """A consistent list and the resourceVersion to watch from."""

    items: list[Object]
    resource_version: str


class WatchEvent(NamedTuple):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Object


class Kube:
    """One connection pool to one API server.

    Every method raises an `errors.ApiError` for an error response, and `errors.Unavailable` without a
    response, for 429, 502, 503 and 504, and, except by `raw` and `stream`, for a response with another body
    than the API's: the API may or may not have executed that request. A request that a busy API refuses is
    sent again after the time that the API asks for, but not a watch or stream. A path that would name another
    object, as by a name with `..`, is `errors.Invalid` without a request.
    """

    def __init__(
        self, configuration: Configuration, *, field_manager: str, detects_hangs: bool = False
    ) -> None:
        """Requests fail with `errors.Hung` within 5 s where the API hangs, if `detects_hangs`."""
        self._configuration = configuration
        self._detects_hangs = detects_hangs
        self._pool = ConnectionPool(configuration)
        self._session: aiohttp.ClientSession | None = None
        self.field_manager = field_manager
        self.namespace = "default"
        """Of an object that `create` gets without a namespace."""

    @property
    def _write_query(self) -> Mapping[str, str]:
        return {"fieldManager": self.field_manager, **STRICT}

    async def __aenter__(self) -> "Kube":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """Return the object."""
        return await self._object("GET", kind.path(namespace, name))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        page_size: int = 500,
        keep: Callable[[Object], Object] | None = None,
    ) -> Listing:
        """Return all objects as of one resourceVersion, with apiVersion and kind.

        With `keep`, the list has the result of `keep` for each object: of large objects only one page of
        `page_size` is in memory.
        """
        items: list[Object] = []
        query = {"limit": str(page_size), "labelSelector": labels, "fieldSelector": fields, "continue": ""}
        while True:
            path = kind.path(namespace)
            page = await self._object("GET", path, query=query)
            listed = answers.objects_in({"items": None, **page}, "items", f"GET {path}")
            for item in listed:
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            items += map(keep, listed) if keep is not None else listed
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                break
        with answers.shape_checked(f"GET {path}"):
            return Listing(items, page["metadata"]["resourceVersion"])

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        resource_version: str,
        *,
        labels: str = "",
        fields: str = "",
        timeout_seconds: int = 300,
        accept: str = "application/json",
    ) -> AsyncIterator[WatchEvent]:
        """Yield the changes after `resource_version` until the server ends the watch.

        The command line asks for Tables by `accept`.

        Raises:
            errors.Gone: the version is too old; list again.
            errors.Unreadable: an event has another shape than the API's, or more than 4 MiB; list again.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(timeout_seconds),
        }
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_SECONDS, sock_read=timeout_seconds + 30
        )
        path = kind.path(namespace)
        async with self._request(
            "GET", path, query=query, accept=accept, timeout=timeout, read_bufsize=WATCH_BUFFER_BYTES
        ) as response:
            await _raise_for_status(response)
            async for line in _lines(response, f"GET {path}"):
                with answers.shape_checked(f"GET {path}"):
                    document = orjson.loads(line)
                    event = WatchEvent(document["type"], document["object"])
                    if event.type == "ERROR":
                        raise errors.from_status(int(event.object.get("code", 500)), event.object)
                yield event

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Create the object; raises AlreadyExists if the name is taken."""
        namespace = obj["metadata"].get("namespace", self.namespace) if kind.namespaced else None
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return await self._object("POST", kind.path(namespace), body=body, query=self._write_query)

    async def update(self, kind: Kind, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace the object; raises Conflict if its resourceVersion is stale."""
        meta = obj["metadata"]
        path = kind.path(meta.get("namespace"), meta["name"], subresource)
        return await self._object("PUT", path, body=obj, query=self._write_query)

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Any,
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> Object:
        """Patch the object, by default with a merge patch."""
        path = kind.path(namespace, name, subresource)
        return await self._object(
            "PATCH", path, body=patch, content_type=content_type, query=self._write_query
        )

    async def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        subresource: str | None = None,
        force: bool = True,
        manager: str | None = None,
    ) -> Object:
        """Server-side apply: set these fields; remove those that the manager owned and names no more."""
        meta = obj["metadata"]
        query = {**self._write_query, "force": "true" if force else "false"}
        if manager:
            query["fieldManager"] = manager
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        path = kind.path(meta.get("namespace"), meta["name"], subresource)
        return await self._object("PATCH", path, body=body, content_type=APPLY_PATCH, query=query)

    async def apply_status(
        self, kind: Kind, obj: Object, status: Object, *, manager: str | None = None
    ) -> Object:
        """Server-side apply of `status` alone; of `obj` only name, namespace and uid count.

        If the stored object has another uid, the embedded API answers Conflict. kube-apiserver refuses the
        change of the uid, but ignores the uid in the status of custom resources.
        """
        meta = {key: obj["metadata"][key] for key in ("name", "namespace", "uid") if key in obj["metadata"]}
        return await self.apply(
            kind, {"metadata": meta, "status": status}, subresource="status", manager=manager
        )

    async def replace_status(self, kind: Kind, obj: Object, status: Object) -> Object:
        """Apply the status, or replace it if others have written to it: an apply keeps fields of others.

        Args:
            kind: a kind whose status has one writer.
            obj: the newest known state of the object.
            status: the whole status.
        """
        meta = obj["metadata"]
        # After a replacement, parts of the status have an own entry too, of another operation: an apply would
        # never remove these.
        status_managers = {
            (entry.get("manager"), entry.get("operation"))
            for entry in meta.get("managedFields") or []
            if entry.get("subresource")
        }
        if status_managers <= {(self.field_manager, "Apply")}:
            return await self.apply_status(kind, obj, status)
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        return await self.patch(
            kind, meta["namespace"], meta["name"], patch, subresource="status", content_type=JSON_PATCH
        )

    async def withdraw_status(self, kind: Kind, namespace: str, name: str, *, manager: str) -> None:
        """Remove the fields of the status that only this manager has applied, and its managedFields."""
        meta = {"namespace": namespace, "name": name}
        await self.apply(kind, {"metadata": meta}, subresource="status", manager=manager)

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete the object; an absent one is no error. With `uid`, another object of the same name stays.

        The node agent deletes with `grace_seconds=0` when a Pod's processes have ended.
        """
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", kind.path(namespace, name), body=body)
        except errors.NotFound:
            return
        except errors.Conflict:
            if not uid:
                raise

    async def raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the body of any path: logs, discovery and the like."""
        return await self._answer("GET", path, {"query": query})

    async def stream(self, path: str, query: Mapping[str, str] | None = None) -> AsyncIterator[bytes]:
        """Yield the body of any path as it arrives, without a time limit."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS)
        async with self._request("GET", path, query=query, timeout=timeout) as response:
            await _raise_for_status(response)
            async for chunk in response.content.iter_any():
                yield chunk

    async def stay_connected(self, is_needed: Callable[[], bool]) -> None:
        """Keep a connection open while `is_needed` returns True, until cancelled: a handshake is most of the
        time of a request.
        """
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if is_needed():
                with suppress(errors.ApiError, errors.Unavailable):
                    await self.raw("/version")

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        """Send a request and return its JSON response; the command line sets `accept` for Tables."""
        options = {"body": body, "query": query, "content_type": content_type, "accept": accept}
        return answers.json_object(await self._answer(method, path, options), f"{method} {path}")

    async def _object(self, method: str, path: str, **options: Any) -> Object:
        """Send a request whose response has metadata, as an object or a list of objects has."""
        obj = await self.request(method, path, **options)
        with answers.shape_checked(f"{method} {path}"):
            if not isinstance(obj["metadata"], dict):
                raise TypeError("metadata must be an object")
        return obj

    async def _answer(self, method: str, path: str, options: Mapping[str, Any]) -> bytes:
        """Return the body of the answer; a request that a busy API refuses is sent again."""

        async def send() -> bytes:
            async with self._request(method, path, **options) as response:
                await _raise_for_status(response)
                return await response.read()

        answer = refusals.repeated(send)
        if not self._detects_hangs:
            return await answer
        return await hangs.unless_hung(answer, f"{method} {path}", self._configuration.host, self._probe)

    async def _probe(self) -> None:
        """Ask for the version over a new connection, as all of the pool may be in use.

        A response with any status shows that the API answers.
        """
        timeout = aiohttp.ClientTimeout(total=hangs.PROBE_SECONDS)
        async with (
            Kube(self._configuration, field_manager=self.field_manager) as other,
            other._request("GET", "/version", timeout=timeout),
        ):
            pass

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,
        read_bufsize: int | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; raise `errors.Unavailable` if no response came or it broke off."""
        check_path(path)
        if self._session is None:
            self._session = self._pool._create_pool_manager()  # noqa: SLF001 its method for subclasses
        # A cluster's audit log, metrics and fair queueing distinguish components by the User-Agent.
        headers = {"Content-Type": content_type, "Accept": accept, "User-Agent": self.field_manager}
        for auth in (await self._configuration.auth_settings()).values():
            headers[auth["key"]] = auth["value"]
        timeout = timeout or aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        try:
            async with self._session.request(
                method,
                self._configuration.host.rstrip("/") + path,
                params={key: value for key, value in (query or {}).items() if value},
                data=None if body is None else orjson.dumps(body),
                headers=headers,
                timeout=timeout,
                read_bufsize=read_bufsize,
                server_hostname=self._configuration.tls_server_name,
            ) as response:
                yield response
        except (
            TimeoutError,
            aiohttp.ClientError,
            HttpProcessingError,
            ssl.SSLError,
            ConnectionError,
        ) as error:
            reason = str(error) or (f"no answer within {timeout.total:g} s" if timeout.total else "no answer")
            raise errors.Unavailable(f"{method} {path}: {type(error).__name__}: {reason}") from error


async def _lines(response: aiohttp.ClientResponse, request: str) -> AsyncIterator[bytes]:
    """Yield the lines of a watch; raise `errors.Unreadable` for one that is too long."""
    try:
        async for line in response.content:
            yield line
    except (LineTooLong, ValueError) as error:  # ValueError: of older aiohttp
        most = 2 * WATCH_BUFFER_BYTES
        raise errors.Unreadable(f"{request}: an event has more than {most} bytes") from error


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    if response.status < 400:
        return
    text = await response.read()
    try:
        status = orjson.loads(text)
    except orjson.JSONDecodeError:
        status = None
    if not isinstance(status, dict):  # a proxy before the API has answered
        status = {"message": text.decode(errors="replace")[:500] or f"HTTP {response.status}"}
    if response.status in (429, 502, 503, 504):
        message = str(status.get("message", ""))
        seconds = http_headers.retry_after(response.headers, clock.now())
        # A gateway that answers 502 or 504 may have passed the request on: the API may execute it still.
        if seconds is not None and response.status in (429, 503):
            raise errors.Busy(message, seconds)
        raise errors.Unavailable(message)
    raise errors.from_status(response.status, status)


async def connect(
    kubeconfig: Path | None = None, *, component: str, pool: int = 64, detects_hangs: bool = False
) -> Kube:
    """Connect to the API.

    Args:
        kubeconfig: path of the file; None: the Pod's service account, or outside a Pod the current
            kubeconfig.
        component: becomes the field manager `slipway-<component>`.
        pool: the highest number of connections at once.
        detects_hangs: a request to an API that hangs fails within 5 s, with `errors.Hung`; for users who
        wait.

    Raises:
        errors.NoApi: there is no file `kubeconfig`.
        errors.UserError: there is no usable configuration.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = pool
    unusable = f"cannot use {kubeconfig or 'the current kubeconfig'}"
    if kubeconfig is not None and not kubeconfig.exists():  # noqa: ASYNC240 once, and where it is read next
        raise errors.NoApi(f"{unusable}: there is no such file")
    try:
        if kubeconfig is not None:
            await kube_config.load(configuration, kubeconfig)
        else:
            try:
                account = config.incluster_config.InClusterConfigLoader(str(_TOKEN), str(_AUTHORITY))
                account.load_and_set(configuration)
            except config.ConfigException:
                await kube_config.load(configuration, None)
    except yaml.YAMLError as error:
        reason = errors.place_in_yaml(error)
        raise errors.UserError(f"{unusable}: {reason}") from None
    except (config.ConfigException, OSError, UnicodeDecodeError) as error:
        raise errors.UserError(f"{unusable}: {error}") from error
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        reason = "it is not a kubeconfig: it is empty, or a field has a wrong type"
        raise errors.UserError(f"{unusable}: {reason}") from error
    if not all(str(value).isprintable() for value in configuration.api_key.values()):
        raise errors.UserError(
            f"{unusable}: its token has a line break or another character that no HTTP header can have"
        )
    if configuration.proxy and urlsplit(configuration.proxy).scheme not in ("http", "https"):
        raise errors.UserError(
            f"{unusable}: proxy-url: must begin with http:// or https://, got {configuration.proxy!r}"
        )
    configuration.client_session_kwargs = _session_options(configuration.host, configuration.proxy)
    try:
        return Kube(configuration, field_manager=f"slipway-{component}", detects_hangs=detects_hangs)
    except OSError as error:  # OpenSSL reads the certificates when the pool is made
        raise errors.UserError(f"{unusable}: its certificates cannot be read: {error}") from error


def _session_options(host: str, proxy: str | None = None) -> dict[str, Any]:
    """Return session options with the kubeconfig's `proxy`, else the environment's proxy for `host`.

    aiohttp would read the environment and ~/.netrc at every request, which doubled the cost of a request.
    """
    parts = urlsplit(host)
    if not proxy and not proxy_bypass(parts.hostname or ""):
        proxy = getproxies().get(parts.scheme)
    return {"trust_env": False, "proxy": proxy or None}


def _is_in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and _TOKEN.exists()


async def connect_eventually(kubeconfig: Path | None = None, *, component: str) -> Kube:
    """Connect as soon as there is a configuration: a component may be started before the API writes it.

    In a Pod without the file, the configuration is that of its service account.
    """
    is_logged = False
    while True:
        is_missing = kubeconfig is not None and not kubeconfig.exists()  # noqa: ASYNC240 as above
        try:
            return await connect(None if is_missing and _is_in_pod() else kubeconfig, component=component)
        except errors.UserError as error:
            if not is_logged:
                log.info("waiting for the API: %s", error)
                is_logged = True
            await asyncio.sleep(CONFIG_SECONDS)
