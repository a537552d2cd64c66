"""Signatures follow cosign's format, verify with openssl, and are valid for their digest only."""

import base64
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from serving import errors
from serving.images.documents import signing

DIGEST = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: bytes | None = None) -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def test_signature_is_valid_for_its_digest_and_key_only(key: ec.EllipticCurvePrivateKey) -> None:
    signature = signing.sign(signing.make_payload("r.example/m", DIGEST), key)
    stranger = ec.generate_private_key(ec.SECP256R1())
    assert signing.verify(signature, DIGEST, [stranger.public_key(), key.public_key()])
    assert not signing.verify(signature, OTHER, [key.public_key()])
    assert not signing.verify(signature, DIGEST, [stranger.public_key()])
    assert not signing.verify(signature, DIGEST, [])


def test_a_fingerprint_names_the_key_and_signers_are_named_by_it(key: ec.EllipticCurvePrivateKey) -> None:
    stranger = ec.generate_private_key(ec.SECP256R1())
    keys = signing.by_fingerprint([key.public_key(), stranger.public_key()])
    again = signing.public_key(public_pem(key))
    assert signing.fingerprint(again) == signing.fingerprint(key.public_key())
    assert len(keys) == 2
    signatures = [signing.sign(signing.make_payload("r.example/m", DIGEST), key)]
    assert signing.signers(signatures, DIGEST, keys) == {signing.fingerprint(again)}
    assert signing.signers(signatures, OTHER, keys) == set()


def test_changed_payload_or_signature_is_not_valid(key: ec.EllipticCurvePrivateKey) -> None:
    signed = signing.sign(signing.make_payload("r.example/m", DIGEST), key)
    forged = signing.make_payload("r.example/m", OTHER)
    assert not signing.verify(replace(signed, payload=forged), OTHER, [key.public_key()])
    for invalid in ("", "%", base64.b64encode(b"x").decode(), signed.signature[:-8]):
        assert not signing.verify(replace(signed, signature=invalid), DIGEST, [key.public_key()])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'{"critical": 1}',
        json.dumps({"critical": {"image": {"docker-manifest-digest": DIGEST}, "type": "other"}}).encode(),
    ],
)
def test_signed_payload_that_is_no_image_signature_is_not_valid(
    key: ec.EllipticCurvePrivateKey, payload: bytes
) -> None:
    assert not signing.verify(signing.sign(payload, key), DIGEST, [key.public_key()])


def test_openssl_verifies_our_signature(key: ec.EllipticCurvePrivateKey, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    signature = signing.sign(signing.make_payload("r.example/m", DIGEST), key)
    for name, data in {
        "key": public_pem(key),
        "payload": signature.payload,
        "sig": base64.b64decode(signature.signature),
    }.items():
        (tmp_path / name).write_bytes(data)
    command = ["openssl", "dgst", "-sha256", "-verify", "key", "-signature", "sig", "payload"]
    verification = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert verification.stdout == "Verified OK\n"


def test_payload_has_the_form_of_simple_signing() -> None:
    assert json.loads(signing.make_payload("r.example/m", DIGEST)) == {
        "critical": {
            "identity": {"docker-reference": "r.example/m"},
            "image": {"docker-manifest-digest": DIGEST},
            "type": "cosign container image signature",
        },
        "optional": None,
    }


def test_keys_are_read_with_and_without_a_password(key: ec.EllipticCurvePrivateKey) -> None:
    for private_key in (signing.private_key(pem(key)), signing.private_key(pem(key, b"pw"), b"pw")):
        assert private_key.private_numbers() == key.private_numbers()
    assert signing.public_key(public_pem(key)) == key.public_key()


@pytest.mark.parametrize(
    ("data", "password", "part"),
    [
        (b"nonsense", None, "cannot be read"),
        (pem(ec.generate_private_key(ec.SECP256R1()), b"pw"), None, "cannot be read"),
        (pem(ec.generate_private_key(ec.SECP256R1()), b"pw"), b"wrong", "cannot be read"),
        (pem(ec.generate_private_key(ec.SECP384R1())), None, "must be ECDSA on P-256"),
        (pem(rsa.generate_private_key(65537, 2048)), None, "must be ECDSA on P-256"),
        (b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n", None, "cosign import-key-pair"),
    ],
)
def test_private_key_of_another_kind_is_refused(data: bytes, password: bytes | None, part: str) -> None:
    with pytest.raises(errors.Permanent, match=part) as raised:
        signing.private_key(data, password)
    assert raised.value.reason == "InvalidKey"


def test_public_key_of_another_kind_is_refused(key: ec.EllipticCurvePrivateKey) -> None:
    for data in (b"nonsense", pem(key), public_pem(ec.generate_private_key(ec.SECP384R1()))):
        with pytest.raises(errors.Permanent) as raised:
            signing.public_key(data)
        assert raised.value.reason == "InvalidKey"
