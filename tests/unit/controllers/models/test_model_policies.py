"""Policies for model versions, read from settings and from annotations of Namespaces."""

from pathlib import Path

import pytest

from serving.controllers.models.model_policies import ModelPolicies
from serving.kube import Informer
from serving.planning.models.policy import ModelPolicy
from serving.resources import kinds, names
from serving.settings import ModelPolicySettings
from tests.fakes.kube import FakeKube
from tests.objects.models.signing_keys import key_pair

SETTINGS = "the settings models.policy"


async def policies_of(settings: ModelPolicySettings, **annotations: str) -> tuple[ModelPolicy, ...]:
    """Return the policies of a Namespace `team`; `policy` and `keys` are its annotations."""
    kube = FakeKube()
    by_name = {"policy": names.MODEL_POLICY_ANNOTATION, "keys": names.MODEL_POLICY_KEYS_ANNOTATION}
    written = {by_name[name]: value for name, value in annotations.items()}
    kube.add(kinds.NAMESPACE, {"metadata": {"name": "team", "annotations": written}})
    policies = ModelPolicies(kube, Informer(kube, kinds.NAMESPACE), settings)
    assert policies.cached("team") is None, "the cache has seen nothing yet"
    current = await policies.current("team")
    assert set(policies.keys(current)) == {key for policy in current for key in policy.keys}
    return current


async def test_nothing_is_required_by_default() -> None:
    current = await policies_of(ModelPolicySettings())
    assert current == (ModelPolicy(SETTINGS), ModelPolicy("Namespace team"))


async def test_rules_and_keys_come_from_settings_and_annotations(tmp_path: Path) -> None:
    ours, theirs, third = key_pair(), key_pair(), key_pair()
    (tmp_path / "a.pub").write_text(ours.public)
    (tmp_path / "b.pub").write_text(third.public)
    settings = ModelPolicySettings(signed=True, keys=f"{tmp_path / 'a.pub'}, {tmp_path / 'b.pub'}")
    installation, namespace = await policies_of(
        settings, policy="noCode,signed", keys=f"{theirs.public}\n{third.public}"
    )
    assert installation == ModelPolicy(
        SETTINGS, frozenset({"signed"}), frozenset({ours.fingerprint, third.fingerprint})
    )
    assert namespace.rules == {"noCode", "signed"}
    assert namespace.keys == {theirs.fingerprint, third.fingerprint}


async def test_a_namespace_without_keys_has_those_of_the_settings(tmp_path: Path) -> None:
    key = key_pair()
    (tmp_path / "a.pub").write_text(key.public)
    settings = ModelPolicySettings(keys=str(tmp_path / "a.pub"))
    assert (await policies_of(settings, policy="signed"))[1].keys == {key.fingerprint}


async def test_a_missing_file_of_keys_is_named(tmp_path: Path) -> None:
    settings = ModelPolicySettings(signed=True, keys=str(tmp_path / "absent.pub"))
    installation, namespace = await policies_of(settings, policy="signed")
    assert "models.policy.keys" in installation.problem
    assert "absent.pub" in installation.problem
    assert namespace.problem == installation.problem


@pytest.mark.parametrize(
    "keys", ["cosign.pub", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]
)
async def test_an_annotation_without_readable_keys_is_named(keys: str) -> None:
    _, namespace = await policies_of(ModelPolicySettings(), policy="signed", keys=keys)
    assert namespace.problem.startswith(f"{names.MODEL_POLICY_KEYS_ANNOTATION}: ")


async def test_a_namespace_that_is_gone_has_the_settings_alone() -> None:
    kube = FakeKube()
    policies = ModelPolicies(kube, Informer(kube, kinds.NAMESPACE), ModelPolicySettings(no_code=True))
    assert await policies.current("gone") == (ModelPolicy(SETTINGS, frozenset({"noCode"})),)
