"""Reads a kubeconfig without leaving its certificate authority in a file.

The client library writes `certificate-authority-data` to the temporary directory and removes it at its exit,
so that each SIGKILL would leave a file.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from serving.kube.connection.kubernetes_aio import Configuration, KubeConfigMerger, config


async def load(configuration: Configuration, path: Path | None) -> None:
    """Load the current context of a kubeconfig; None is the file, or the files, of $KUBECONFIG.

    Raises:
        config.ConfigException: the file is not a kubeconfig, or lacks a field.
        OSError: the file cannot be read.
    """
    merged = KubeConfigMerger(str(path or config.KUBE_CONFIG_DEFAULT_LOCATION)).config
    authority = _take_authority(merged)
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
        return base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise config.ConfigException(f"certificate-authority-data is not base64 of PEM: {error}") from error
