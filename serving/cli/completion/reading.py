"""Reads from the API with the standard library: the client of other commands takes 0.4 s of CPU to import.

That client is used where the kubeconfig has more than an address, a CA, and a token or certificate files.
"""

import base64
import ssl
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from serving.system.network.redirects import NoRedirects

SECONDS = 1.0
"""Time limit of the connect, and of each read of the response: a user waits for them at each Tab."""
LIMIT = 500
"""Most names: nobody reads more candidates."""
_SCHEMES = ("https://", "http://")
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_USER_FIELDS = {"token", "client-certificate", "client-key"}
_CLUSTER_FIELDS = {
    "server",
    "certificate-authority-data",
    "certificate-authority",
    "insecure-skip-tls-verify",
}


class _Server(NamedTuple):
    url: str
    context: ssl.SSLContext | None
    token: str


def metadata(kubeconfig: Path, path: str) -> list[Any]:
    """Return the first `LIMIT` objects of a collection, with their metadata alone.

    Args:
        kubeconfig: the file.
        path: path of the collection in the API.

    Raises:
        OSError: the API does not answer, or its answer is an error.
        errors.SlipwayError: as OSError, from the client of the other commands.
    """
    items: list[Any] = _read(kubeconfig, path, {"limit": str(LIMIT)}, _METADATA)["items"]
    return items


def get(kubeconfig: Path, path: str) -> Any:
    """Return the object at this path of the API; raises the errors of `metadata`."""
    return _read(kubeconfig, path, {}, "application/json")


def _read(kubeconfig: Path, path: str, query: dict[str, str], accept: str) -> Any:
    server = _server(kubeconfig)
    if server is None:
        return _read_with_client(kubeconfig, path, query, accept)
    url = f"{server.url}{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
    headers = {"Accept": accept, **({"Authorization": f"Bearer {server.token}"} if server.token else {})}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 `_server` has checked the scheme
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=server.context), NoRedirects)
    with opener.open(request, timeout=SECONDS) as response:
        return orjson.loads(response.read())


def _read_with_client(kubeconfig: Path, path: str, query: dict[str, str], accept: str) -> Any:
    import asyncio

    from serving.kube import connect

    async def read() -> Any:
        async with asyncio.timeout(SECONDS), await connect(kubeconfig, component="cli", pool=1) as kube:
            return await kube.request("GET", path, query=query, accept=accept)

    return asyncio.run(read())


def _server(kubeconfig: Path) -> _Server | None:
    """Return the server of the current context; None where the client of other commands must connect."""
    document = yaml.safe_load(kubeconfig.read_text())
    context = _named(document, "contexts", document["current-context"])["context"]
    cluster = _named(document, "clusters", context["cluster"])["cluster"]
    user = _named(document, "users", context["user"])["user"] if context.get("user") else {}
    url = str(cluster["server"]).rstrip("/")
    if set(user) - _USER_FIELDS or set(cluster) - _CLUSTER_FIELDS or not url.startswith(_SCHEMES):
        return None
    tls = _tls(cluster, user, kubeconfig.parent) if url.startswith("https:") else None
    return _Server(url, tls, str(user.get("token", "")))


def _named(document: Any, section: str, name: str) -> Any:
    return next(entry for entry in document[section] if entry["name"] == name)


def _tls(cluster: Any, user: Any, directory: Path) -> ssl.SSLContext:
    """Return the TLS context of a cluster and a user; `directory`, the kubeconfig's, has their files."""
    data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
    context = ssl.create_default_context(
        cafile=str(directory / file) if file and not data else None,
        cadata=base64.b64decode(data).decode() if data else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := user.get("client-certificate"):
        context.load_cert_chain(directory / certificate, directory / user["client-key"])
    return context
