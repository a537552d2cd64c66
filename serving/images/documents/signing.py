"""Signatures in sigstore's key-based format, as `cosign sign --key` makes them. Pure.

The payload is a "simple signing" document (https://github.com/containers/image,
docs/containers-signature.5.md), signed with ECDSA on P-256 over SHA-256, DER, base64
(https://github.com/sigstore/cosign, specs/SIGNATURE_SPEC.md). Keyless signatures (Fulcio, Rekor) are not
supported: each verification would need services of others.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from serving import errors
from serving.images.documents import oci

PAYLOAD_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE_ANNOTATION = "dev.cosignproject.cosign/signature"
SIGNATURE_ARTIFACT = "application/vnd.dev.cosign.artifact.sig.v1+json"
"""artifactType by which cosign finds signatures among an image's referrers (cosign, pkg/oci/remote, OCI 1.1
mode).
"""
_PAYLOAD_KIND = "cosign container image signature"
"""`critical.type` of the payloads that cosign writes; containers/image writes another one."""
_ALGORITHM = ec.ECDSA(hashes.SHA256())
_COSIGN_PEM_LABELS = (b"ENCRYPTED SIGSTORE PRIVATE KEY", b"ENCRYPTED COSIGN PRIVATE KEY")

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey


@dataclass(frozen=True)
class Signature:
    """A payload's exact bytes, and the signature over them in base64."""

    payload: bytes
    signature: str


def private_key(pem: bytes, password: bytes | None = None) -> PrivateKey:
    """Read a private key: PKCS#8 or SEC 1, with a password if it is encrypted.

    Raises:
        errors.Permanent: `InvalidKey`.
    """
    if any(label in pem for label in _COSIGN_PEM_LABELS):
        raise errors.Permanent(
            "InvalidKey",
            "the private key is in cosign's own encryption, which is not supported: "
            "make a PKCS#8 key with openssl and give it to cosign with `cosign import-key-pair`",
        )
    try:
        key = serialization.load_pem_private_key(pem, password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise errors.Permanent("InvalidKey", f"the private key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise errors.Permanent("InvalidKey", "the private key must be ECDSA on P-256")
    return key


def public_key(pem: bytes) -> PublicKey:
    """Read a public key (`cosign.pub`).

    Raises:
        errors.Permanent: `InvalidKey`.
    """
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise errors.Permanent("InvalidKey", f"the public key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise errors.Permanent("InvalidKey", "the public key must be ECDSA on P-256")
    return key


def fingerprint(key: PublicKey) -> str:
    """Return `sha256:<hex>` of the key's DER (SubjectPublicKeyInfo), which `openssl pkey -pubin -outform DER`
    writes.
    """
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def by_fingerprint(keys: Iterable[PublicKey]) -> dict[str, PublicKey]:
    """Return the keys by their fingerprints."""
    return {fingerprint(key): key for key in keys}


def make_payload(name: str, digest: str) -> bytes:
    """Return the signed payload: `digest` is an image that was pushed as `name` (host and repository)."""
    return oci.encode(
        {
            "critical": {
                "identity": {"docker-reference": name},
                "image": {"docker-manifest-digest": digest},
                "type": _PAYLOAD_KIND,
            },
            "optional": None,
        }
    )


def sign(payload: bytes, key: PrivateKey) -> Signature:
    """Sign a payload; signatures of the same payload differ, as ECDSA draws a random number."""
    return Signature(payload, base64.b64encode(key.sign(payload, _ALGORITHM)).decode())


def verify(signature: Signature, digest: str, keys: Sequence[PublicKey]) -> bool:
    """Whether the signature is by one of the keys and for this digest. The repository in the payload is not
    checked, as images are copied.
    """
    return any(_is_signed_by(signature, key) for key in keys) and _payload_digest(signature.payload) == digest


def signers(signatures: Sequence[Signature], digest: str, keys: Mapping[str, PublicKey]) -> frozenset[str]:
    """Return the names, in `keys`, of the keys that made one of the signatures for this digest."""
    return frozenset(
        name
        for name, key in keys.items()
        if any(verify(signature, digest, [key]) for signature in signatures)
    )


def _is_signed_by(signature: Signature, key: PublicKey) -> bool:
    try:
        key.verify(base64.b64decode(signature.signature, validate=True), signature.payload, _ALGORITHM)
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _payload_digest(payload: bytes) -> str:
    """Return the digest that a payload is about, or '' if the bytes are not a payload."""
    try:
        critical: Any = json.loads(payload)["critical"]
        return str(critical["image"]["docker-manifest-digest"]) if critical["type"] == _PAYLOAD_KIND else ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def layer(signature: Signature) -> dict[str, Any]:
    """Return the descriptor of the layer that holds a signature, in a signature manifest."""
    annotations = {SIGNATURE_ANNOTATION: signature.signature}
    return {**oci.descriptor(PAYLOAD_TYPE, signature.payload), "annotations": annotations}


def documents(layers: Sequence[Mapping[str, Any]], subject: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return (manifest, config), as bytes, of the signatures of one image.

    cosign reads the layers as those of an image, so the config lists them.

    Args:
        layers: descriptors as `layer` makes them. Those of other signers keep their further annotations, such
            as certificates and entries of a log.
        subject: descriptor of the signed image.
    """
    config = oci.encode(
        {
            "architecture": "",
            "os": "",
            "config": {},
            "created": "0001-01-01T00:00:00Z",
            "history": [{"created": "0001-01-01T00:00:00Z"} for _ in layers],
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
        }
    )
    manifest = oci.encode(
        {
            "schemaVersion": 2,
            "mediaType": oci.MANIFEST_TYPE,
            "artifactType": SIGNATURE_ARTIFACT,
            "config": oci.descriptor(oci.CONFIG_TYPE, config),
            "layers": list(layers),
            "subject": dict(subject),
        }
    )
    return manifest, config
