"""Certificates of a running server: renewed without dropping connections, accepted by strict clients."""

import base64
import datetime as dt
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from serving import clock
from serving.embedded.apiserver import certificates
from serving.settings import ApiSettings
from tests.objects.config_maps import MAPS, config_map, events
from tests.rig.servers.api_process import ApiProcess


@pytest.fixture
def renewing(tmp_path: Path) -> Iterator[ApiProcess]:
    """A server whose certificates are always about to expire."""
    server = ApiProcess(
        tmp_path / "data", certificate_days=2, renew_before_days=3, renew_check_seconds=0.3
    ).start()
    yield server
    server.stop()


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[ApiProcess]:
    """A server whose certificates are not due."""
    server = ApiProcess(tmp_path / "data").start()
    yield server
    server.stop()


def served_certificate(server: ApiProcess, host: str = "127.0.0.1") -> x509.Certificate:
    """Return the certificate of a new connection, verified strictly by the CA of the kubeconfig."""
    config = yaml.safe_load(server.data_dir.kubeconfig.read_text())
    authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    with (
        socket.create_connection(("127.0.0.1", server.settings.port), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate)


def test_new_connections_get_the_new_certificate_and_open_ones_continue(renewing: ApiProcess) -> None:
    path = MAPS.format("default")
    with renewing.http() as client, renewing.http() as watcher:
        watching = events(watcher, path, timeoutSeconds="30")
        client.post(path, json=config_map("before"))
        assert next(watching)["object"]["metadata"]["name"] == "before"
        authority = (renewing.data_dir.tls / "ca.crt").read_bytes()
        first = served_certificate(renewing)
        deadline = time.monotonic() + 10
        while (later := served_certificate(renewing, "localhost")).serial_number == first.serial_number:
            assert time.monotonic() < deadline, "not renewed"
            time.sleep(0.05)
        assert later.not_valid_after_utc >= first.not_valid_after_utc
        assert (renewing.data_dir.tls / "ca.crt").read_bytes() == authority
        client.post(path, json=config_map("after"))
        assert next(watching)["object"]["metadata"]["name"] == "after"


def test_certificates_are_valid_when_the_clock_is_set_back_by_half_a_day(tmp_path: Path) -> None:
    now = clock.now()
    certificates.ensure(tmp_path, "127.0.0.1", ApiSettings(), now)
    earlier = now - dt.timedelta(hours=14)  # the largest offset of a time zone
    assert certificates.can_serve(tmp_path, earlier)
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    assert authority.not_valid_before_utc <= earlier


@pytest.mark.parametrize("name", ["server.key", "ca.key"])
def test_a_key_is_replaced_when_it_is_encrypted(tmp_path: Path, name: str) -> None:
    now = clock.now()
    certificates.ensure(tmp_path, "127.0.0.1", ApiSettings(), now)
    key = serialization.load_pem_private_key((tmp_path / name).read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / name).write_bytes(key.private_bytes(pem, pkcs8, encryption))
    assert certificates.ensure(tmp_path, "127.0.0.1", ApiSettings(), now)
    assert certificates.can_serve(tmp_path, now)


def test_certificate_and_authority_are_the_same_after_a_restart(lasting: ApiProcess) -> None:
    authority = (lasting.data_dir.tls / "ca.crt").read_bytes()
    first = served_certificate(lasting)
    lasting.stop()
    lasting.start()
    assert served_certificate(lasting).serial_number == first.serial_number
    assert (lasting.data_dir.tls / "ca.crt").read_bytes() == authority


def test_authority_is_the_same_after_a_restart_that_renews_the_certificate(renewing: ApiProcess) -> None:
    authority = (renewing.data_dir.tls / "ca.crt").read_bytes()
    first = served_certificate(renewing)
    renewing.stop()
    renewing.start()
    assert served_certificate(renewing).serial_number != first.serial_number
    assert (renewing.data_dir.tls / "ca.crt").read_bytes() == authority
