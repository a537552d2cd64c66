"""The certificate authority of a data directory, and the server certificate that it issues and renews.

Both satisfy strict clients (RFC 5280; VERIFY_X509_STRICT is the default of Python 3.13): they have key
identifiers, a critical keyUsage, and names in subjectAltName.
"""

import contextlib
import datetime as dt
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from serving.settings import ApiSettings
from serving.system.files import atomic_file

LEAST_CA_DAYS = 3650
"""The CA outlives many server certificates; clients trust it through the kubeconfig."""
_BACKDATE = dt.timedelta(days=1)
"""Tolerance for clients whose clocks are behind, and for this machine's own clock, if it is set back: a day
covers a clock that had the local time for UTC."""


class _Issued(NamedTuple):
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class CertificateFiles:
    """PEM files in the `tls` directory."""

    ca: Path
    ca_key: Path
    certificate: Path
    key: Path


def files(directory: Path) -> CertificateFiles:
    return CertificateFiles(
        directory / "ca.crt", directory / "ca.key", directory / "server.crt", directory / "server.key"
    )


def ensure(directory: Path, host: str, settings: ApiSettings, now: dt.datetime) -> bool:
    """Replace unusable files, and return whether there were any.

    A file is unusable if it is missing, damaged, not yet valid, due for renewal, or for other names than
    those of `host`. With a new CA the server's certificate is replaced too.

    Raises:
        OSError: a file could not be read or written; no file is replaced before all are written.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = files(directory)
    ca = _usable_ca(paths, settings, now)
    if ca is not None and _usable_server(paths, ca.certificate, host, settings, now):
        return False
    contents: dict[Path, bytes] = {}
    if ca is None:
        # Longer than a certificate of any lifetime: else it would be due for replacement at once.
        ca = _make_ca(now, max(LEAST_CA_DAYS, 2 * settings.certificate_days))
        contents[paths.ca_key] = _key_pem(ca.key)
        contents[paths.ca] = ca.certificate.public_bytes(serialization.Encoding.PEM)
    server = _make_server(ca, _names(host), now, settings.certificate_days)
    contents[paths.key] = _key_pem(server.key)
    contents[paths.certificate] = server.certificate.public_bytes(serialization.Encoding.PEM)
    _replace(contents)
    return True


def can_serve(directory: Path, now: dt.datetime) -> bool:
    """Whether the directory has a certificate that is valid now, and its key."""
    paths = files(directory)
    server, key = _load(paths.certificate), _load_key(paths.key)
    return (
        server is not None
        and key is not None
        and server.public_key() == key.public_key()
        and server.not_valid_before_utc <= now < server.not_valid_after_utc
    )


def _replace(contents: Mapping[Path, bytes]) -> None:
    """Write all files before the first one is replaced: a full disk must not leave a key of another
    certificate.
    """
    with contextlib.ExitStack() as stack:
        for path, content in contents.items():
            temporary = stack.enter_context(atomic_file.replacing(path))
            # Of `replace` only mode and sync matter here: no reader knows the temporary file.
            atomic_file.replace(Path(temporary), content, mode=0o600, synced=True)


def _usable_ca(paths: CertificateFiles, settings: ApiSettings, now: dt.datetime) -> _Issued | None:
    """Return the CA, unless it is missing, damaged, not yet valid (it was issued while the clock was
    ahead) or expires before a certificate issued now.
    """
    ca, key = _load(paths.ca), _load_key(paths.ca_key)
    if ca is None or key is None or ca.public_key() != key.public_key():
        return None
    if ca.not_valid_before_utc > now:
        return None
    if ca.not_valid_after_utc - now < dt.timedelta(days=settings.certificate_days):
        return None
    return _Issued(ca, key)


def _usable_server(
    paths: CertificateFiles, ca: x509.Certificate, host: str, settings: ApiSettings, now: dt.datetime
) -> bool:
    server, key = _load(paths.certificate), _load_key(paths.key)
    return (
        server is not None
        and key is not None
        and server.public_key() == key.public_key()
        and server.issuer == ca.subject
        and _alternative_names(server) == _names(host)
        and server.not_valid_before_utc <= now
        and server.not_valid_after_utc - now > dt.timedelta(days=settings.renew_before_days)
    )


def _load(path: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (FileNotFoundError, TypeError, ValueError, UnsupportedAlgorithm):  # TypeError: it is encrypted
        return None
    path.chmod(0o600)
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _names(host: str) -> list[x509.GeneralName]:
    """Return the names by which clients reach a server that listens on `host`.

    A server on the unspecified address is also reached by the machine's name.
    """
    addresses, hosts = ["127.0.0.1", "::1"], ["localhost"]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        hosts.append(host)
    else:
        addresses.append(str(address))
        if address.is_unspecified:
            hosts.append(os.uname().nodename)
    dns_names = [x509.DNSName(name) for name in dict.fromkeys(hosts)]
    return [*dns_names, *(x509.IPAddress(ipaddress.ip_address(text)) for text in dict.fromkeys(addresses))]


def _alternative_names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, public_key: ec.EllipticCurvePublicKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _make_ca(now: dt.datetime, days: int) -> _Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    # A new name for each key, so that clients do not confuse this CA with an older one.
    serial = x509.random_serial_number() % 10**8
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"slipway-ca-{serial}")])
    certificate = (
        _builder(subject, key.public_key(), now, days)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Issued(certificate, key)


def _make_server(ca: _Issued, names: list[x509.GeneralName], now: dt.datetime, days: int) -> _Issued:
    """Issue a certificate for the server that is valid for `days` from `now`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slipway-api")])
    certificate = (
        _builder(subject, key.public_key(), now, days)
        .issuer_name(ca.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False
        )
        .sign(ca.key, hashes.SHA256())
    )
    return _Issued(certificate, key)
