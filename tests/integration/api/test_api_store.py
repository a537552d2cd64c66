"""The store on a real file: a full disk, a damaged file; and the certificates."""

import datetime as dt
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from serving import errors
from serving.embedded.apiserver import certificates
from serving.embedded.apiserver.storage.database import Database
from serving.embedded.apiserver.storage.history import ObjectChange, ObjectKey
from serving.embedded.apiserver.storage.store import ObjectStore
from serving.resources import kinds
from serving.settings import ApiSettings

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def config_map(name: str, size: int = 1) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v" * size}}


async def test_writes_are_refused_and_not_visible_when_the_disk_is_full(tmp_path: Path) -> None:
    database = Database(tmp_path / "db", epoch=100, history=50)
    store = ObjectStore(database)
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
    reopened = ObjectStore(Database(tmp_path / "db", epoch=999, history=50))
    assert list(reopened.keys(kinds.CONFIG_MAP, None)) == [ObjectKey("n", "after"), ObjectKey("n", "kept")]
    assert reopened.version == after.version
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
