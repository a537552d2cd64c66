"""Writes this machine's metrics pages to a file of Prometheus targets (`file_sd_configs`).

Components choose their ports at their start and record them (`serving.metrics`); `up` keeps the file current.
"""

import asyncio
import logging
from collections.abc import Iterable

import orjson

from serving import metrics
from serving.data_dir import DataDir
from serving.system.files import atomic_file

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
"""Between reads of the ports (four small files), less than a usual scrape interval."""


def document(pages: Iterable[metrics.MetricsPage]) -> bytes:
    """Return the file's content: one group of targets for each component."""
    groups = [
        {
            "targets": [page.authority],
            "labels": {"__metrics_path__": metrics.PATH, "component": page.component},
        }
        for page in pages
    ]
    return orjson.dumps(groups, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


class ScrapeTargets:
    """The targets file of one data directory."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._path = data_dir.prometheus_targets
        self._written: bytes | None = None
        self._has_failed = False

    async def run(self) -> None:
        """Keep the file current until cancelled. Cancelling removes no file, as the components run on."""
        while True:
            self.write()
            await asyncio.sleep(POLL_SECONDS)

    def write(self) -> None:
        """Replace the file atomically if its content has changed."""
        new = document(metrics.pages(self._data_dir.pages))
        if new == self._written and self._path.exists():
            return
        try:
            atomic_file.replace(self._path, new)
        except OSError as error:
            if not self._has_failed:
                log.warning("%s cannot be written: %s", self._path, error)
            self._has_failed = True
            return
        self._has_failed = False
        self._written = new

    def remove(self) -> None:
        """Remove the file, after the last component has stopped."""
        self._path.unlink(missing_ok=True)
