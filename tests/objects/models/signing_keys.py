"""Key pairs for signatures of images."""

from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from serving.images.documents import signing


class KeyPair(NamedTuple):
    """A key pair as PEM, and the fingerprint of its public key."""

    private: str
    public: str
    fingerprint: str


def key_pair() -> KeyPair:
    """Return a new key pair."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(private.decode(), public.decode(), signing.fingerprint(key.public_key()))
