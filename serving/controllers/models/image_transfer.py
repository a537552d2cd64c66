"""Pushes and pulls images by a Model's spec: its credentials, signing key and trusted keys."""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serving import errors
from serving.images.documents.image import parse
from serving.images.documents.signing import PrivateKey, PublicKey, by_fingerprint, private_key, public_key
from serving.images.registry import Credentials, Reference, Registry, pull, push, signatures
from serving.images.store import disk
from serving.images.store.model_store import CountedStore, ModelStore
from serving.kube import Kube
from serving.planning.models.version import CORRECTABLE
from serving.resources import kinds, names
from serving.resources.model import ModelSpec
from serving.settings import RegistrySettings

ReportProgress = Callable[[str], None]
"""Takes a message about progress, from any thread."""

DOCKER_CONFIG_KEY = ".dockerconfigjson"
"""Key in a Secret of type kubernetes.io/dockerconfigjson."""
SIGNING_KEY = "cosign.key"
"""Key in a signing Secret, named as by cosign; the private key is not in cosign's own encryption."""
SIGNING_PASSWORD = "cosign.password"  # noqa: S105 a key in a Secret, not a password
_MOST_MOUNT_SOURCES = 3
"""Most repositories to mount blobs from: each costs a request for every blob that the target lacks."""


class ImageTransfer:
    """Pushes and pulls the images of ModelVersions."""

    def __init__(self, kube: Kube, store: ModelStore, settings: RegistrySettings) -> None:
        self._kube = kube
        self._store = store
        self._settings = settings

    async def push(
        self, namespace: str, model_spec: ModelSpec, digest: str, tag: str, report: ReportProgress
    ) -> str:
        """Push an image from the store, signed if the Model has a signing key; returns `REPOSITORY@DIGEST`.

        `report` is called often, from other threads.

        Raises:
            errors.Permanent, errors.Temporary: as `serving.images.registry.push`; a fault that an
                administrator can correct is Temporary.
        """
        assert model_spec.registry is not None
        target = Reference.parse(f"{model_spec.registry.repository}:{tag}")
        try:
            credentials = await self._credentials(namespace, model_spec)
            key = await self._signing_key(namespace, model_spec)
            async with Registry(credentials, self._settings) as registry:
                store = await asyncio.to_thread(self._counting_store, digest, target, report)
                shared = await asyncio.to_thread(self._mountable, digest, target)
                pushed = await push(registry, store, digest, target, mount_from=shared, signing_key=key)
        except errors.Permanent as error:
            raise _temporary_if_correctable(error) from error
        return pushed.image

    def _mountable(self, digest: str, target: Reference) -> list[str]:
        """Return repositories of the same registry that have layers of this image already."""
        layers = self._layers(digest)
        repositories: set[str] = set()
        for stored in self._store.images():
            origin = self._store.origin(stored)
            if origin is None:
                continue
            reference = Reference.parse(origin)
            if (
                reference.host == target.host
                and reference.name != target.name
                and layers & self._layers(stored)
            ):
                repositories.add(reference.repository)
        return sorted(repositories)[:_MOST_MOUNT_SOURCES]

    def _layers(self, digest: str) -> frozenset[str]:
        """Return the digests of an image's layers; none if it has just been evicted."""
        try:
            return frozenset(layer.digest for layer in parse(self._store.read_manifest(digest)).layers)
        except errors.Permanent:
            return frozenset()

    def _counting_store(self, digest: str, target: Reference, report: ReportProgress) -> CountedStore:
        total, sent = disk.size(self._store.tree(digest)), 0

        def count(size: int) -> None:
            nonlocal sent
            sent += size
            report(f"pushing to {target.name}: sent {sent / 2**20:.1f} of at most {total / 2**20:.1f} MiB")

        return CountedStore(self._store.root, count)

    async def pull(
        self, namespace: str, model_spec: ModelSpec, image: str, *, built_here: bool = False
    ) -> str:
        """Pull an image into the store; returns its digest.

        If the Model has trusted keys, one must have signed the image. An image that was built here
        (`built_here`) needs no signature, as its digest is known.

        Raises:
            errors.Permanent, errors.Temporary: as `serving.images.registry.pull`; a fault that an
                administrator can correct is Temporary.
        """
        try:
            keys = [public_key(pem.encode()) for pem in ([] if built_here else _trusted(model_spec))]
            credentials = await self._credentials(namespace, model_spec)
            async with Registry(credentials, self._settings) as registry:
                return await pull(registry, self._store, Reference.parse(image), trusted_keys=keys)
        except errors.Permanent as error:
            raise _temporary_if_correctable(error) from error

    async def signers(
        self, namespace: str, model_spec: ModelSpec, image: str, trusted: Mapping[str, PublicKey]
    ) -> frozenset[str]:
        """Return the fingerprints of the known keys that have signed a stored image.

        Known are `trusted`, the Model's trusted keys, and the key that it signs with. Signatures are read in
        the store, and in the registry where the store lacks one.

        Raises:
            errors.Permanent, errors.Temporary: as `pull`.
        """
        digest = image.rpartition("@")[2]
        try:
            known = [public_key(pem.encode()) for pem in _trusted(model_spec)]
            if (own := await self._signing_key(namespace, model_spec)) is not None:
                known.append(own.public_key())
            keys = {**trusted, **by_fingerprint(known)}
            signers = await asyncio.to_thread(signatures.signers_in_store, self._store, digest, keys)
            missing = {name: key for name, key in keys.items() if name not in signers}
            if not missing or image.startswith(f"{names.LOCAL_REGISTRY}/"):
                return signers
            credentials = await self._credentials(namespace, model_spec)
            async with Registry(credentials, self._settings) as registry:
                return signers | await signatures.signers(registry, Reference.parse(image), digest, missing)
        except errors.Permanent as error:
            raise _temporary_if_correctable(error) from error

    async def _credentials(self, namespace: str, model_spec: ModelSpec) -> Credentials:
        if model_spec.registry is None or model_spec.registry.secret_name is None:
            return Credentials.from_docker(helper_seconds=self._settings.helper_seconds)
        name = model_spec.registry.secret_name
        data = await self._secret(namespace, name)
        return Credentials.from_secret(_value(data, name, DOCKER_CONFIG_KEY), name)

    async def _signing_key(self, namespace: str, model_spec: ModelSpec) -> PrivateKey | None:
        if model_spec.signing is None:
            return None
        name = model_spec.signing.secret_name
        data = await self._secret(namespace, name)
        password = _value(data, name, SIGNING_PASSWORD) if SIGNING_PASSWORD in data else None
        return private_key(_value(data, name, SIGNING_KEY), password)

    async def _secret(self, namespace: str, name: str) -> dict[str, Any]:
        try:
            return (await self._kube.get(kinds.SECRET, namespace, name)).get("data") or {}
        except errors.NotFound as error:
            raise errors.Temporary("SecretNotFound", f"there is no Secret {name}") from error
        except errors.Forbidden as error:
            raise errors.Temporary("SecretForbidden", str(error)) from error
        except errors.Invalid as error:
            raise errors.Temporary("InvalidSecret", str(error)) from error


def _trusted(model_spec: ModelSpec) -> Sequence[str]:
    return model_spec.verification.keys if model_spec.verification is not None else []


def _value(data: dict[str, Any], secret: str, key: str) -> bytes:
    if key not in data:
        raise errors.Temporary("InvalidSecret", f"Secret {secret}: must have the key {key}")
    return base64.b64decode(data[key])


def _temporary_if_correctable(error: errors.Permanent) -> errors.SlipwayError:
    return errors.Temporary(error.reason, str(error)) if error.reason in CORRECTABLE else error
