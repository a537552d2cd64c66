"""The store on a real file: a full disk, a damaged file; and the certificates."""

import datetime as dt
import ssl
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from cryptography import x509

from serving import errors
from serving.embedded.apiserver import certificates
from serving.embedded.apiserver.storage import database as database_module
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.history import ObjectChange, ObjectKey
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.resources import kinds
from serving.settings import ApiSettings
from tests.objects.stored_kinds import STORED_KINDS

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def config_map(name: str, size: int = 1) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v" * size}}


async def test_writes_are_refused_and_not_visible_when_the_disk_is_full(tmp_path: Path) -> None:
    database = Database(tmp_path / "db", epoch=100, history=50)
    store = ObjectStore(database, STORED_KINDS)
    seen: list[ObjectChange] = []
    store.on_change(seen.append)
    kept = await store.submit(kinds.CONFIG_MAP, ObjectKey("n", "kept"), config_map("kept")).committed()
    run = database._connection.execute
    pages = run("PRAGMA page_count").fetchone()[0]
    run(f"PRAGMA max_page_count={pages + 4}").fetchone()
    writes = [
        store.submit(kinds.CONFIG_MAP, ObjectKey("n", name), config_map(name, 100_000))
        for name in ("big", "bigger")
    ]
    for write in writes:
        with pytest.raises(errors.ApiError) as refused:
            await write.committed()
        assert refused.value.code == 507
    assert store.newest(kinds.CONFIG_MAP, ObjectKey("n", "big")) is None
    assert [change.key.name for change in seen] == ["kept"]
    run("PRAGMA max_page_count=1000000").fetchone()
    after = await store.submit(kinds.CONFIG_MAP, ObjectKey("n", "after"), config_map("after")).committed()
    assert after.version == kept.version + 1
    await store.close()
    reopened = ObjectStore(Database(tmp_path / "db", epoch=999, history=50), STORED_KINDS)
    assert list(reopened.keys(kinds.CONFIG_MAP, None)) == [ObjectKey("n", "after"), ObjectKey("n", "kept")]
    assert reopened.version == after.version
    await reopened.close()


LARGE = ObjectKey("n", "large")


async def _rewrite(store: ObjectStore, times: int) -> None:
    """Write an object of 10 kB so often, each time with another value."""
    for number in range(times):
        body = config_map("large", 10_000) | {"data": {"k": "v" * 10_000, "n": str(number)}}
        await store.submit(kinds.CONFIG_MAP, LARGE, body).committed()


def _log_bytes(database: Database) -> int:
    return int(database._connection.execute("SELECT total(length(before)) FROM log").fetchone()[0])


async def test_log_in_the_file_is_bounded_in_bytes_when_objects_are_large(tmp_path: Path) -> None:
    database = Database(tmp_path / "db", epoch=100, history=10_000, history_bytes=200_000)
    store = ObjectStore(database, STORED_KINDS)
    await _rewrite(store, 100)
    version = store.version
    assert 180_000 < _log_bytes(database) < 220_000
    await store.close()
    reopened = ObjectStore(
        Database(tmp_path / "db", epoch=999, history=10_000, history_bytes=200_000), STORED_KINDS
    )
    assert reopened.version == version
    changes = reopened.history.since("configmaps", version - 10)
    assert [change.version for change in changes] == list(range(version - 9, version + 1))
    with pytest.raises(errors.Gone):
        reopened.history.since("configmaps", version - 50)
    await reopened.close()


async def test_start_reads_only_the_changes_that_are_kept_when_the_log_of_an_older_version_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(Database(tmp_path / "db", epoch=100, history=10_000), STORED_KINDS)
    await _rewrite(store, 100)
    version = store.version
    await store.close()
    read: list[bytes] = []

    def loads(body: bytes) -> Any:
        read.append(body)
        return orjson.loads(body)

    monkeypatch.setattr(database_module, "orjson", SimpleNamespace(loads=loads))
    monkeypatch.setattr(database_module, "_TRIMMED_BYTES", 100_000)
    database = Database(tmp_path / "db", epoch=999, history=10_000, history_bytes=200_000)
    store = ObjectStore(database, STORED_KINDS)
    assert store.version == version
    assert len(read) < 25
    sizes = []
    for _ in range(12):
        await _rewrite(store, 1)
        sizes.append(_log_bytes(database))
    assert all(before - after < 110_000 for before, after in pairwise(sizes))
    assert sizes[-1] < 220_000
    await store.close()


async def test_newest_change_is_kept_when_it_alone_is_larger_than_the_bound(tmp_path: Path) -> None:
    store = ObjectStore(Database(tmp_path / "db", epoch=100, history=50, history_bytes=1), STORED_KINDS)
    await _rewrite(store, 5)
    version = store.version
    await store.close()
    reopened = ObjectStore(Database(tmp_path / "db", epoch=999, history=50, history_bytes=1), STORED_KINDS)
    assert reopened.version == version
    await reopened.close()


def test_the_error_of_a_damaged_file_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(errors.UserError, match="move it away"):
        Database(tmp_path / "db", epoch=1, history=50)


def test_certificates_are_renewed_before_they_expire_and_for_other_names(tmp_path: Path) -> None:
    settings, directory = ApiSettings(certificate_days=365, renew_before_days=30), tmp_path / "tls"
    files = certificates.files(directory)
    assert certificates.ensure(directory, "127.0.0.1", settings, NOW)
    ca, first = files.ca.read_bytes(), files.certificate.read_bytes()
    assert not certificates.ensure(directory, "127.0.0.1", settings, NOW + dt.timedelta(days=334))
    assert certificates.ensure(directory, "127.0.0.1", settings, NOW + dt.timedelta(days=336))
    assert files.ca.read_bytes() == ca
    assert files.certificate.read_bytes() != first
    assert certificates.ensure(directory, "192.0.2.7", settings, NOW)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in alternative.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "::1", "192.0.2.7"}
    files.key.write_text("damaged")
    assert certificates.ensure(directory, "192.0.2.7", settings, NOW)
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(files.certificate, files.key)


def test_certificates_are_replaced_when_they_are_not_yet_valid(tmp_path: Path) -> None:
    settings, directory = ApiSettings(certificate_days=365, renew_before_days=30), tmp_path / "tls"
    files, ahead = certificates.files(directory), NOW + dt.timedelta(days=3 * 365)
    certificates.ensure(directory, "127.0.0.1", settings, ahead)
    ca = files.ca.read_bytes()
    assert certificates.ensure(directory, "127.0.0.1", settings, NOW)
    assert files.ca.read_bytes() != ca
    assert certificates.can_serve(directory, NOW)
    ca = files.ca.read_bytes()
    certificates.ensure(directory, "192.0.2.7", settings, NOW + dt.timedelta(days=100))
    assert certificates.ensure(directory, "192.0.2.7", settings, NOW)
    assert files.ca.read_bytes() == ca
    assert certificates.can_serve(directory, NOW)


@pytest.mark.parametrize("days", [3649, 3650, 36500])
def test_a_ca_outlives_its_certificates_when_they_are_valid_for_years(tmp_path: Path, days: int) -> None:
    settings, directory = ApiSettings(certificate_days=days, renew_before_days=30), tmp_path / "tls"
    assert certificates.ensure(directory, "127.0.0.1", settings, NOW)
    for passed in (dt.timedelta(hours=1), dt.timedelta(days=days - 31)):
        assert not certificates.ensure(directory, "127.0.0.1", settings, NOW + passed)
    ca = certificates.files(directory).ca.read_bytes()
    assert certificates.ensure(directory, "127.0.0.1", settings, NOW + dt.timedelta(days=days - 29))
    assert certificates.files(directory).ca.read_bytes() == ca


def test_a_certificate_that_cannot_be_renewed_stays_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, directory = ApiSettings(certificate_days=365, renew_before_days=30), tmp_path / "tls"
    files, due = certificates.files(directory), NOW + dt.timedelta(days=350)
    certificates.ensure(directory, "127.0.0.1", settings, NOW)
    before = files.certificate.read_bytes(), files.key.read_bytes()
    replace = certificates.atomic_file.replace

    def full_after_the_key(path: Path, content: bytes, **options: Any) -> None:
        if b"CERTIFICATE" in content:
            raise OSError(28, "No space left on device")
        replace(path, content, **options)

    monkeypatch.setattr(certificates.atomic_file, "replace", full_after_the_key)
    with pytest.raises(OSError, match="No space"):
        certificates.ensure(directory, "127.0.0.1", settings, due)
    assert (files.certificate.read_bytes(), files.key.read_bytes()) == before
    assert len(list(directory.iterdir())) == 4
    assert certificates.can_serve(directory, due)
    assert not certificates.can_serve(directory, due + dt.timedelta(days=30))
