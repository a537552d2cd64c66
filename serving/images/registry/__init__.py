"""Push to and pull from any registry that speaks the OCI distribution protocol.

    async with Registry(credentials) as registry:
        pushed = await push(registry, store, digest, Reference.parse("registry.example/models/digits:v1"))
        digest = await pull(registry, store, Reference.parse(f"registry.example/models/digits@{digest}"))

`reference`, `challenge`, `docker_config` and `descriptors` are pure; `client` opens the connections.
"""

from serving.images.registry.auth.credentials import Credentials
from serving.images.registry.client import Registry
from serving.images.registry.pull import pull
from serving.images.registry.push import Pushed, push
from serving.images.registry.reference import Reference

__all__ = ["Credentials", "Pushed", "Reference", "Registry", "pull", "push"]
