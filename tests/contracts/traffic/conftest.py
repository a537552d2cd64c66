import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.kube import Kube
from serving.resources import kinds
from serving.settings import DEFAULTS, Settings
from tests.contracts.conftest import Machine
from tests.contracts.traffic.digits_world import DigitsReplicas, DigitsWorld
from tests.objects import rights_stories as stories
from tests.rig.servers.gateway import envoys_have_ended


@pytest.fixture
def controller_settings(namespace: str) -> Settings:
    """Return settings with the Leases in the test's namespace; the played node names no container runtime."""
    return dataclasses.replace(
        DEFAULTS,
        controllers=dataclasses.replace(DEFAULTS.controllers, lease_namespace=namespace),
        models=dataclasses.replace(DEFAULTS.models, volume="image"),
    )


@pytest.fixture
async def world(
    kube: Kube,
    namespace: str,
    controllers: None,
    machine: Machine,
    controller_settings: Settings,
    component_kubeconfig: Path,
    tmp_path: Path,
) -> AsyncIterator[DigitsWorld]:
    replicas = DigitsReplicas()
    with envoys_have_ended():
        async with replicas.at(machine.address):
            for version in ("v1", "v2"):
                await kube.create(kinds.MODEL_VERSION, stories.version(namespace, version, "m", tmp_path))
            yield DigitsWorld(
                kube,
                namespace,
                component_kubeconfig,
                tmp_path,
                controller_settings,
                machine.scheduler,
                replicas,
            )
            await kube.delete(kinds.INFERENCE, namespace, "digits")
