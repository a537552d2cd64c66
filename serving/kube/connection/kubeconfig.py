"""Reads a kubeconfig without leaving its certificates and its private key in files.

The client library writes `certificate-authority-data`, `client-certificate-data` and `client-key-data` to the
temporary directory and removes them at its exit, so that each SIGKILL would leave files.
"""

import asyncio
import base64
import binascii
import os
import sys
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from serving.kube.connection.kubernetes_aio import Configuration, KubeConfigMerger, config


async def load(configuration: Configuration, path: Path | None) -> None:
    """Load the current context of a kubeconfig; None: of $KUBECONFIG (one file or several), else
    of ~/.kube/config.

    Raises:
        config.ConfigException: the file is not a kubeconfig, or lacks a field.
        OSError: the file cannot be read.
    """
    merged = KubeConfigMerger(str(path or config.KUBE_CONFIG_DEFAULT_LOCATION)).config
    authority = _take_authority(merged)
    if sys.platform == "linux":
        _keep_in_memory(merged, configuration)
    loader = await config.load_kube_config_from_dict(merged, client_configuration=configuration)
    if authority is not None:
        configuration.ca_cert_data = authority
    if hasattr(loader, "exec_plugin_expiry"):
        configuration.refresh_api_key_hook = _token_refresh(loader)


def _token_refresh(loader: Any) -> Callable[[Configuration], Awaitable[None]]:
    """Return a hook for each request, which runs the user's `exec` plugin again when its token expires."""
    lock = asyncio.Lock()

    async def refresh(configuration: Configuration) -> None:
        async with lock:  # one run for all requests that wait for a token
            await loader.load_from_exec_plugin()  # does nothing while the token is valid
        configuration.api_key["BearerToken"] = loader.token

    return refresh


def _take_authority(merged: Any) -> str | None:
    """Remove the certificate authority of the current context from its cluster and return it, as PEM."""
    if merged is None:
        return None
    context = merged["contexts"].get_with_name(merged["current-context"])
    cluster = merged["clusters"].get_with_name(context["context"]["cluster"])["cluster"].value
    encoded = cluster.pop("certificate-authority-data", None)
    if not encoded:
        return None
    # As in client-go, the data is used where the cluster has a file too.
    cluster.pop("certificate-authority", None)
    try:
        return _decoded("certificate-authority-data", encoded).decode("ascii")
    except UnicodeDecodeError as error:
        raise config.ConfigException(f"certificate-authority-data is not base64 of PEM: {error}") from error


def _keep_in_memory(merged: Any, configuration: Configuration) -> None:
    """Replace the certificate and the key in the current user's data by files in memory, until the
    configuration is dropped: OpenSSL reads a client certificate from a path alone.
    """
    if merged is None:
        return
    name = merged["contexts"].get_with_name(merged["current-context"])["context"].safe_get("user")
    named = merged["users"].get_with_name(name, safe=True) if name and merged.safe_get("users") else None
    if named is None:
        return
    user = named["user"].value
    for field in ("client-certificate", "client-key"):
        encoded = user.pop(f"{field}-data", None)
        if not encoded:
            continue
        content = _decoded(f"{field}-data", encoded)
        file = os.fdopen(os.memfd_create(field), "wb", buffering=0)
        weakref.finalize(configuration, file.close)
        file.write(content)
        user[field] = f"/proc/self/fd/{file.fileno()}"


def _decoded(field: str, encoded: str) -> bytes:
    try:
        # Line breaks are allowed, as to Go's decoder: a block of YAML has them.
        return base64.b64decode("".join(encoded.splitlines()), validate=True)
    except binascii.Error as error:
        raise config.ConfigException(f"{field} is not base64 of PEM: {error}") from error
