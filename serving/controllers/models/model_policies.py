"""Reads the policies for model versions: the settings of the installation, and annotations of Namespaces."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from serving import errors
from serving.images.documents import signing
from serving.images.documents.signing import PublicKey
from serving.kube import Informer, Kube
from serving.objects import Object
from serving.planning.models import policy
from serving.planning.models.policy import ModelPolicy
from serving.resources import kinds, names
from serving.settings import ModelPolicySettings

_PEM = re.compile(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\n?", re.DOTALL)


class ModelPolicies:
    """One per process. The files of the settings' keys are read once."""

    def __init__(self, kube: Kube, namespaces: Informer, settings: ModelPolicySettings) -> None:
        self._kube = kube
        self._namespaces = namespaces
        self._keys: dict[str, PublicKey] = {}
        """Every key that a policy has named so far, by fingerprint."""
        self._installation = self._of_settings(settings)

    def cached(self, namespace: str) -> tuple[ModelPolicy, ...] | None:
        """Return the policies of a namespace from the cache; None if the cache lacks the namespace."""
        stored = self._namespaces.get("", namespace)
        return None if stored is None else self._of_both(stored)

    async def current(self, namespace: str) -> tuple[ModelPolicy, ...]:
        """Return the policies of a namespace as the API has them now."""
        try:
            return self._of_both(await self._kube.get(kinds.NAMESPACE, None, namespace))
        except errors.NotFound:  # its objects are being deleted with it
            return (self._installation,)

    def keys(self, policies: Iterable[ModelPolicy]) -> Mapping[str, PublicKey]:
        """Return the public keys of policies by fingerprint."""
        return {
            fingerprint: self._keys[fingerprint]
            for model_policy in policies
            for fingerprint in model_policy.keys
        }

    def _of_both(self, namespace: Object) -> tuple[ModelPolicy, ...]:
        """Return the policy of the installation, then the one of the namespace."""
        return self._installation, self._of_namespace(namespace)

    def _of_settings(self, settings: ModelPolicySettings) -> ModelPolicy:
        switches = {policy.NO_CODE: settings.no_code, policy.SIGNED: settings.signed}
        rules = frozenset(rule for rule, is_on in switches.items() if is_on)
        place = "the settings models.policy"
        try:
            paths = [Path(path.strip()) for path in settings.keys.split(",") if path.strip()]
            return ModelPolicy(place, rules, self._read("\n".join(path.read_text() for path in paths)))
        except (OSError, ValueError, errors.Permanent) as error:
            return ModelPolicy(place, rules, problem=f"models.policy.keys: {error}")

    def _of_namespace(self, namespace: Object) -> ModelPolicy:
        place, rules = f"Namespace {namespace['metadata']['name']}", policy.rules_of(namespace)
        annotations = namespace["metadata"].get("annotations") or {}
        if names.MODEL_POLICY_KEYS_ANNOTATION not in annotations:
            inherited = self._installation
            return ModelPolicy(place, rules, inherited.keys, inherited.problem)
        try:
            return ModelPolicy(place, rules, self._read(annotations[names.MODEL_POLICY_KEYS_ANNOTATION]))
        except errors.Permanent as error:
            return ModelPolicy(place, rules, problem=f"{names.MODEL_POLICY_KEYS_ANNOTATION}: {error}")

    def _read(self, text: str) -> frozenset[str]:
        """Remember the concatenated PEM public keys in `text`, and return their fingerprints.

        Raises:
            errors.Permanent: `InvalidKey`.
        """
        if rest := _PEM.sub("", text).strip():
            raise errors.Permanent("InvalidKey", f"must be PEM public keys, got {rest[:40]!r}")
        keys = signing.by_fingerprint(signing.public_key(pem.encode()) for pem in _PEM.findall(text))
        self._keys.update(keys)
        return frozenset(keys)
