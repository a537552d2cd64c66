"""Registries as a Model's policy wants them: whose login, which key signs, whose signature is trusted."""

import asyncio
import base64
from collections.abc import Callable
from typing import Any

from serving import errors
from serving.images.documents.image import parse
from serving.images.documents.signing import PrivateKey, private_key, public_key
from serving.images.registry import Credentials, Reference, Registry, pull, push
from serving.images.store import disk
from serving.images.store.model_store import CountedStore, ModelStore
from serving.kube import Kube
from serving.resources import kinds
from serving.resources.model import ModelSpec
from serving.settings import RegistrySettings

Say = Callable[[str], None]

DOCKER_CONFIG_KEY = ".dockerconfigjson"
"""Of a Secret of type kubernetes.io/dockerconfigjson."""
SIGNING_KEY = "cosign.key"
"""Of a signing Secret, as cosign names it; not in cosign's own encryption."""
SIGNING_PASSWORD = "cosign.password"  # noqa: S105 the name of a Secret's key, no password
_MOUNTED_FROM = 3
"""Repositories that are asked for a blob: each is a request for each blob that the target lacks."""
_MENDABLE = frozenset({"Unauthorized", "InvalidCredentials", "InvalidKey", "UntrustedCertificate"})
"""What whoever keeps the Secret or the registry can put right: worth another try, though not for the client's code."""


class Registries:
    """Pushes and pulls for the versions of a Model."""

    def __init__(self, kube: Kube, store: ModelStore, settings: RegistrySettings) -> None:
        self._kube = kube
        self._store = store
        self._settings = settings

    async def push(self, namespace: str, policy: ModelSpec, digest: str, tag: str, say: Say) -> str:
        """Push an image of the store, signed where the policy says so; returns `REPOSITORY@DIGEST`.

        `say` is told how far it is, often, from other threads.

        Raises:
            errors.Permanent, errors.Temporary: as `serving.images.registry.push`; what a Secret's keeper can mend is
                Temporary.
        """
        assert policy.registry is not None
        target = Reference.parse(f"{policy.registry.repository}:{tag}")
        try:
            credentials = await self._credentials(namespace, policy)
            key = await self._signing_key(namespace, policy)
            async with Registry(credentials, self._settings) as registry:
                store = await asyncio.to_thread(self._counted, digest, target, say)
                shared = await asyncio.to_thread(self._sharing, digest, target)
                pushed = await push(registry, store, digest, target, mount_from=shared, signing_key=key)
        except errors.Permanent as error:
            raise _mendable(error) from error
        return pushed.image

    def _sharing(self, digest: str, target: Reference) -> list[str]:
        """Return repositories of the same registry that have layers of this image: it need not be sent them again."""
        wanted = self._layers(digest)
        found: set[str] = set()
        for other in self._store.images():
            origin = self._store.origin(other)
            if origin is None:
                continue
            place = Reference.parse(origin)
            if place.host == target.host and place.name != target.name and wanted & self._layers(other):
                found.add(place.repository)
        return sorted(found)[:_MOUNTED_FROM]

    def _layers(self, digest: str) -> frozenset[str]:
        """Return an image's layers; none of one that has just been evicted."""
        try:
            return frozenset(layer.digest for layer in parse(self._store.read_manifest(digest)).layers)
        except errors.Permanent:
            return frozenset()

    def _counted(self, digest: str, target: Reference, say: Say) -> CountedStore:
        total, sent = disk.size(self._store.tree(digest)), 0

        def count(size: int) -> None:
            nonlocal sent
            sent += size
            say(f"pushing to {target.name}: sent {sent / 2**20:.1f} of at most {total / 2**20:.1f} MiB")

        return CountedStore(self._store.root, count)

    async def pull(self, namespace: str, policy: ModelSpec, image: str, *, ours: bool = False) -> str:
        """Bring an image into the store; returns its digest. Its signature must be trusted where the policy asks for one.

        `ours` were built and pushed here: their digest is what was built, signed or not.

        Raises:
            errors.Permanent, errors.Temporary: as `serving.images.registry.pull`; what a Secret's keeper can mend is
                Temporary.
        """
        trusted = policy.verification.keys if policy.verification and not ours else []
        try:
            keys = [public_key(pem.encode()) for pem in trusted]
            credentials = await self._credentials(namespace, policy)
            async with Registry(credentials, self._settings) as registry:
                return await pull(registry, self._store, Reference.parse(image), trusted_keys=keys)
        except errors.Permanent as error:
            raise _mendable(error) from error

    async def _credentials(self, namespace: str, policy: ModelSpec) -> Credentials:
        if policy.registry is None or policy.registry.secret_name is None:
            return Credentials.from_docker()
        name = policy.registry.secret_name
        data = await self._secret(namespace, name)
        return Credentials.from_secret(_value(data, name, DOCKER_CONFIG_KEY), name)

    async def _signing_key(self, namespace: str, policy: ModelSpec) -> PrivateKey | None:
        if policy.signing is None:
            return None
        name = policy.signing.secret_name
        data = await self._secret(namespace, name)
        password = _value(data, name, SIGNING_PASSWORD) if SIGNING_PASSWORD in data else None
        return private_key(_value(data, name, SIGNING_KEY), password)

    async def _secret(self, namespace: str, name: str) -> dict[str, Any]:
        try:
            return (await self._kube.get(kinds.SECRET, namespace, name)).get("data") or {}
        except errors.NotFound as error:
            raise errors.Temporary("SecretNotFound", f"there is no Secret {name}") from error


def _value(data: dict[str, Any], secret: str, key: str) -> bytes:
    if key not in data:
        raise errors.Temporary("InvalidSecret", f"Secret {secret}: must have the key {key}")
    return base64.b64decode(data[key])


def _mendable(error: errors.Permanent) -> errors.SlipwayError:
    return errors.Temporary(error.reason, str(error)) if error.reason in _MENDABLE else error
