"""The API server renews its certificate while it runs."""

import asyncio
import datetime as dt
import errno
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from serving import clock
from serving.data_dir import DataDir
from serving.embedded.apiserver import access, server
from serving.settings import ApiSettings
from tests.rig.control_plane.convergence import until

CREATED = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


class Context(ssl.SSLContext):
    """Cannot load the first certificate."""

    loads = 0

    def load_cert_chain(self, *files: Any, **options: Any) -> None:
        self.loads += 1
        if self.loads == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        super().load_cert_chain(*files, **options)


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> server._Tls:
    """The certificate of a server, which has become due for renewal since its start."""
    monkeypatch.setattr(clock, "now", lambda: CREATED)
    tls = server._Tls(DataDir(tmp_path), ApiSettings(renew_check_seconds=0.01), 7443, "token")
    tls.start()
    monkeypatch.setattr(clock, "now", lambda: CREATED + dt.timedelta(days=350))
    return tls


async def test_renewed_certificate_is_loaded_by_the_retry_when_it_could_not_be_loaded(
    tls: server._Tls,
) -> None:
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    renewals = asyncio.create_task(tls.keep_fresh(context))
    try:
        await until(lambda: context.loads >= 2)
        await asyncio.sleep(0.05)
    finally:
        renewals.cancel()
        await asyncio.gather(renewals, return_exceptions=True)
    assert context.loads == 2, "a loaded certificate is not loaded again"


@pytest.mark.parametrize("failures", [1, 1_000_000])
async def test_renewed_certificate_is_loaded_when_the_kubeconfig_cannot_be_written(
    tls: server._Tls, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    context, write, writes = Context(ssl.PROTOCOL_TLS_SERVER), access.write_kubeconfig, 0

    def fail(*args: Any, **options: Any) -> None:
        nonlocal writes
        writes += 1
        if writes <= failures:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        write(*args, **options)

    monkeypatch.setattr(access, "write_kubeconfig", fail)
    renewals = asyncio.create_task(tls.keep_fresh(context))
    try:
        await until(lambda: context.loads >= 2 and writes >= min(failures + 1, 5))
        await asyncio.sleep(0.05)
    finally:
        renewals.cancel()
        await asyncio.gather(renewals, return_exceptions=True)
    assert context.loads == 2
    assert (writes == 2) == (failures == 1), "the kubeconfig is written until that succeeds"
