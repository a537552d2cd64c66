"""The served port of a custom container on the whole product: the gateway reaches it, and nobody else."""

import sys

import numpy as np
import pytest
import tritonclient.grpc.aio as triton

from serving.resources import kinds
from tests.rig import gateway_ports
from tests.rig.servers import stack as stacks
from tests.rig.servers.stack import NAMESPACE, PROGRAMS, LiveStack, predictors, until

PORT = 9000
pytestmark = [pytest.mark.slow, pytest.mark.root, gateway_ports.needs_marks]


async def test_custom_container_answers_the_gateway_and_no_other_connection(stack: LiveStack) -> None:
    container = {
        "name": "predictor",
        "image": "tests/grpc",
        "command": [sys.executable, str(PROGRAMS / "grpc_replica.py")],
        "ports": [{"name": "grpc", "containerPort": PORT}],
        "readinessProbe": {"grpc": {"port": PORT}, "periodSeconds": 2},
    }
    own = [{**arm, "template": {"containers": [container]}} for arm in predictors(a=("v-2", 1))]
    tensor = triton.InferInput("input", [1, 64], "FP64")
    tensor.set_data_from_numpy(np.ones((1, 64)))
    options = [("grpc.default_authority", f"closed.{NAMESPACE}.slipway.local")]
    async with stacks.deployed(stack, "closed", own, framework="custom") as kube:
        await until(kube, kinds.INFERENCE, "closed", stacks.settled)
        async with triton.InferenceServerClient(stack.gateway, channel_args=options) as client:
            result = await client.infer("closed", [tensor], client_timeout=60)
        assert result.get_response().model_version == "v-2"
        (address,) = [pod["status"]["podIP"] for pod in await stacks.pods(kube, "closed")]
        assert gateway_ports.accepts(address, PORT, marked=True)
        assert not gateway_ports.accepts(address, PORT)
