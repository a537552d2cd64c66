"""gRPC on the whole product: both kinds of replicas, from zero, by an unmodified tritonclient."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton

from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import NAMESPACE, PROGRAMS, LiveStack, is_at_zero, predictors, until

pytestmark = pytest.mark.slow

SCALE = {"autoScale": {"minReplicas": 0, "maxReplicas": 1, "behavior": {"scaleToZero": {"idleSeconds": 1}}}}


def arms(version: str, **template: Any) -> list[Object]:
    return [{**arm, **SCALE, **template} for arm in predictors(a=(version, 1))]


def grpc_container() -> Object:
    container = {
        "name": "predictor",
        "image": "tests/grpc",
        "command": [sys.executable, str(PROGRAMS / "grpc_replica.py")],
        "ports": [{"name": "grpc", "containerPort": 9000}],
        "readinessProbe": {"grpc": {"port": 9000}, "periodSeconds": 2},
    }
    return {"template": {"containers": [container]}}


@pytest.fixture
async def kube(stack: LiveStack) -> AsyncIterator[Kube]:
    """A client, once the Inferences `digits` (sklearn) and `own` (a gRPC container) are at zero."""
    async with stacks.deployed(stack, "digits", arms("v-1")) as client:
        own = stacks.inference("own", arms("v-2", **grpc_container()), framework="custom")
        await client.create(kinds.INFERENCE, own)
        for name in ("digits", "own"):
            await until(client, kinds.INFERENCE, name, is_at_zero)
        yield client


async def test_first_call_at_zero_is_answered_by_both_kinds_of_replicas(stack: LiveStack, kube: Kube) -> None:
    tensor = triton.InferInput("input", [1, 64], "FP64")
    tensor.set_data_from_numpy(np.ones((1, 64)))
    for name, version in (("digits", "v-1"), ("own", "v-2")):
        options = [("grpc.default_authority", f"{name}.{NAMESPACE}.slipway.local")]
        async with triton.InferenceServerClient(stack.gateway, channel_args=options) as client:
            result = await client.infer(name, [tensor], client_timeout=60)
            assert result.get_response().model_version == version
            assert await client.is_server_ready()
        await until(kube, kinds.INFERENCE, name, is_at_zero)
    service = await kube.get(kinds.SERVICE, NAMESPACE, await serving(kube, "own"))
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["appProtocol"]) == (9000, "kubernetes.io/h2c")


async def serving(kube: Kube, name: str) -> str:
    inference = await kube.get(kinds.INFERENCE, NAMESPACE, name)
    return str(inference["status"]["predictors"][0]["revision"])
