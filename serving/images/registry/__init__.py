"""Pushes to and pulls from registries that implement the OCI distribution protocol.

    async with Registry(credentials) as registry:
        pushed = await push(registry, store, digest, Reference.parse("registry.example/models/digits:v1"))
        digest = await pull(registry, store, Reference.parse(f"registry.example/models/digits@{digest}"))

`reference`, `descriptors`, `auth.challenge` and `auth.docker_config` are pure; `client` connects.
"""

from serving.images.registry.auth.credentials import Credentials
from serving.images.registry.client import Registry
from serving.images.registry.pull import pull
from serving.images.registry.push import Pushed, push
from serving.images.registry.reference import Reference

__all__ = ["Credentials", "Pushed", "Reference", "Registry", "pull", "push"]
