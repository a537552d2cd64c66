"""The API takes every object of the overlays of `manifests/overlays`.

As `kubectl apply -k --server-side --dry-run=server`, which also needs OpenAPI v2 of the server.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from serving import errors
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kubernetes.patch_types import APPLY_PATCH
from tests.contracts.conftest import CRD
from tests.objects.contract_objects import eventually, gone
from tests.rig.control_plane import discovery
from tests.rig.control_plane.kubectl import KUBECTL, Kubectl

pytestmark = [
    pytest.mark.server_only("the overlays are of a cluster"),
    pytest.mark.skipif(
        "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="the overlays are of a cluster"
    ),
    pytest.mark.kubectl,
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed: set KUBECTL or put it on PATH"),
]

OVERLAYS = Path(__file__).parents[3] / "manifests" / "overlays"
NAMESPACES = ("slipway-system", "team")
"""Of the overlays: a dry run of an object needs its namespace."""
SERVICE_MONITORS = "servicemonitors.monitoring.coreos.com"


def service_monitors() -> Object:
    """Return a CRD that takes every ServiceMonitor, for a cluster without the Prometheus Operator."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"}
    spec = {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": SERVICE_MONITORS}, "spec": spec}


@pytest.fixture
async def around(kube: Kube) -> AsyncIterator[None]:
    """What the overlays expect of a cluster; what it lacked is removed at the end."""
    wanted = [(CRD, service_monitors())]
    wanted += [(kinds.NAMESPACE, {"metadata": {"name": name}}) for name in NAMESPACES]
    made = []
    for kind, obj in wanted:
        with contextlib.suppress(errors.AlreadyExists):
            await kube.create(kind, obj)
            made.append((kind, obj["metadata"]["name"]))

    async def is_served() -> bool:
        try:
            await kube.raw("/apis/monitoring.coreos.com/v1/servicemonitors")
        except errors.NotFound:
            return False
        return True

    await eventually(is_served, 30)
    yield
    for kind, name in made:
        await kube.delete(kind, None, name)
    for kind, name in made:
        await eventually(lambda kind=kind, name=name: gone(kube, kind, None, name), 60)


@pytest.mark.usefixtures("around")
@pytest.mark.parametrize("overlay", sorted(path.name for path in OVERLAYS.iterdir()))
async def test_the_api_takes_every_object_of_an_overlay(
    kube: Kube, contract_kubeconfig: Path, tmp_path: Path, overlay: str
) -> None:
    kubectl = Kubectl(contract_kubeconfig, tmp_path, "default")
    rendered = await asyncio.to_thread(kubectl, "kustomize", str(OVERLAYS / overlay))
    objects = list(yaml.safe_load_all(rendered))
    assert len(objects) > 30
    for obj in objects:
        kind, meta = await discovery.kind_of(kube, obj), obj["metadata"]
        await kube.request(
            "PATCH",
            kind.path(meta.get("namespace"), meta["name"]),
            body=obj,
            content_type=APPLY_PATCH,
            query={"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "contract", "force": "true"},
        )
