"""Reads a kubeconfig without leaving its certificate authority in a file.

The client library writes `certificate-authority-data` to the temporary directory and removes it at its exit,
so that each SIGKILL would leave a file.
"""

import base64
import binascii
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
    await config.load_kube_config_from_dict(merged, client_configuration=configuration)
    if authority is not None:
        configuration.ca_cert_data = authority


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
