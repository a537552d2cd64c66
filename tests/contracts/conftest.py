"""What we rely on from the Kubernetes API, run unchanged on the embedded server and on a real kube-apiserver.

`KUBECONFIG=... make test-cluster` sets `SLIPWAY_CONTRACT_KUBECONFIG`; the suite then installs our CRDs there
and works in namespaces of its own. Without it, the embedded server is started.
"""

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.data_dir import DataDir
from serving.kube import Kube, connect
from serving.resources import catalog, kinds

CRD = kinds.Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


@pytest.fixture(scope="session")
def contract_kubeconfig(request: pytest.FixtureRequest) -> Path:
    """The server under test: a cluster's kubeconfig, or the embedded server's."""
    if cluster := os.environ.get("SLIPWAY_CONTRACT_KUBECONFIG"):
        return Path(cluster)
    data_dir: DataDir = request.getfixturevalue("api_server")
    return data_dir.kubeconfig


@pytest.fixture
async def kube(contract_kubeconfig: Path) -> AsyncIterator[Kube]:
    async with await connect(contract_kubeconfig, component="contract") as client:
        if "SLIPWAY_CONTRACT_KUBECONFIG" in os.environ:
            for definition in catalog.DEFINITIONS:
                await client.apply(CRD, catalog.crd(definition))
        yield client


@pytest.fixture
async def namespace(kube: Kube) -> AsyncIterator[str]:
    name = f"contract-{uuid.uuid4().hex[:8]}"
    await kube.create(kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await kube.delete(kinds.NAMESPACE, None, name)
