"""The metrics pages that a gateway's Lease names, for the autoscaler."""

import logging

from serving import metrics
from serving.data_dir import DataDir
from serving.resources.leases import ACTIVATOR_PAGES_ANNOTATION, PAGES_ANNOTATION
from serving.system.network import addresses, sockets

log = logging.getLogger(__name__)

ANNOTATIONS = {"gateway": PAGES_ANNOTATION, "activator": ACTIVATOR_PAGES_ANNOTATION}
"""By component."""


async def advertised(page: metrics.MetricsPage) -> str:
    """Return the address by which the autoscaler reaches pages of this host."""
    try:
        return await sockets.advertised(page.bound)
    except OSError as error:
        log.warning("only an autoscaler on this host can read its pages: its name has no address: %s", error)
        return addresses.local(page.bound)


def annotations(data_dir: DataDir, host: str) -> dict[str, str]:
    """Return the Lease's annotations: the pages of this gateway, and of the activator beside it."""
    return {
        ANNOTATIONS[page.component]: f"http://{addresses.authority(host, page.port)}{metrics.PATH}"
        for page in metrics.pages(data_dir.pages)
        if page.component in ANNOTATIONS
    }
