"""gRPC through a real Envoy to real replicas of the scikit-learn runtime, by an unmodified tritonclient."""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from serving.images.building.model_image import build_image
from serving.images.store.model_store import ModelStore
from serving.resources.names import ARM_HEADER, SERVED_VERSION_HEADER
from serving.router.plan.service import Cluster, Endpoint
from serving.training import digits
from tests.rig.servers import runtime_process
from tests.rig.servers.activator import activator, until_waiting
from tests.rig.servers.gateway import GatewayRig, endpoint_slice, gateway_rig, route
from tests.rig.servers.runtime_process import Running, host, wait_ready

HOST_NAME = "digits.default.slipway.local"
CLUSTER = Cluster("default/digits-a/8080", ())
INFER = "/inference.GRPCInferenceService/ModelInfer"
IMAGES, LABELS = digits.held_out()


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Running]]:
    """A replica of the version `a-v1`, and one of `b-v1`."""
    base = tmp_path_factory.mktemp("digits")
    digits.write(*digits.train("logistic", seed=1), base / "out")
    store = ModelStore(base / "store")
    built = build_image(base / "out", store, repository="slipway.local/default/digits", lineage={})
    models = store.tree(built.digest) / "models"
    command = ["-m", "serving.runtimes.sklearn.server"]
    started = [
        runtime_process.start(
            command, built.digest, models, base / f"{arm}.log", SLIPWAY_MODEL_VERSION=f"{arm}-v1"
        )
        for arm in "ab"
    ]
    for server in started:
        wait_ready(server)
    yield started
    for server in started:
        server.process.kill()
        server.process.wait()


def slices(replicas: Sequence[Running]) -> list[dict[str, Any]]:
    return [
        endpoint_slice(f"digits-{arm}", [host()], port=replica.port)
        for arm, replica in zip("ab", replicas, strict=False)
    ]


def addressed_to(host: str) -> list[tuple[str, str]]:
    return [("grpc.default_authority", host)]


@contextlib.asynccontextmanager
async def client(
    gateway: GatewayRig, host: str = HOST_NAME
) -> AsyncIterator[triton_aio.InferenceServerClient]:
    address = gateway.url.removeprefix("http://")
    async with triton_aio.InferenceServerClient(address, channel_args=addressed_to(host)) as triton_client:
        yield triton_client


def images(array: np.ndarray = IMAGES) -> triton.InferInput:
    tensor = triton.InferInput("input", list(array.shape), "FP64")
    tensor.set_data_from_numpy(array)
    return tensor


def use_synchronous_client(address: str) -> Any:
    with triton.InferenceServerClient(address, channel_args=addressed_to(HOST_NAME)) as triton_client:
        assert triton_client.is_server_live()
        assert triton_client.is_server_ready()
        assert triton_client.is_model_ready("digits")
        assert triton_client.get_server_metadata().name == "slipway-sklearn"
        metadata = triton_client.get_model_metadata("digits", as_json=True)
        assert (metadata["name"], metadata["platform"], metadata["versions"]) == (
            "digits",
            "sklearn",
            ["a-v1"],
        )
        assert metadata["inputs"] == [{"name": "input", "datatype": "FP64", "shape": ["-1", "64"]}]
        assert [output["name"] for output in metadata["outputs"]] == ["predict", "probabilities"]
        results = []
        for compression in (None, "gzip", "deflate"):
            result = triton_client.infer(
                "digits",
                [images()],
                outputs=[triton.InferRequestedOutput("predict")],
                request_id="r1",
                compression_algorithm=compression,
            )
            response = result.get_response()
            assert (response.model_name, response.id, len(response.outputs)) == ("digits", "r1", 1)
            results.append(result.as_numpy("predict"))
        return results


async def test_tritonclient_describes_and_infers_while_http_stays_as_it_is(
    tmp_path: Path, replicas: Sequence[Running]
) -> None:
    async with gateway_rig(tmp_path) as gateway, aiohttp.ClientSession() as session:
        await gateway.serve([route("digits", [("a", 10_000)])], slices(replicas))
        address = gateway.url.removeprefix("http://")
        for predicted in await asyncio.to_thread(use_synchronous_client, address):
            assert np.mean(predicted == LABELS) > 0.9
        document = {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 64], "data": [0.0] * 64}]}
        url = f"{gateway.url}/v2/models/digits/infer"
        async with session.post(url, json=document, headers={"host": HOST_NAME}) as response:
            assert (response.status, response.headers["content-type"]) == (200, "application/json")
            assert (await response.json())["outputs"][0]["name"] == "predict"


async def test_typed_contents_are_answered_by_typed_contents(
    tmp_path: Path, replicas: Sequence[Running]
) -> None:
    request = service_pb2.ModelInferRequest(model_name="digits")
    request.inputs.add(name="input", datatype="FP64", shape=[1, 64]).contents.fp64_contents.extend(IMAGES[0])
    async with gateway_rig(tmp_path) as gateway:
        await gateway.serve([route("digits", [("a", 10_000)])], slices(replicas))
        address = gateway.url.removeprefix("http://")
        async with grpc.aio.insecure_channel(address, options=addressed_to(HOST_NAME)) as channel:
            answer = await channel.unary_unary(INFER)(request.SerializeToString())
    response = service_pb2.ModelInferResponse.FromString(answer)
    assert not response.raw_output_contents
    assert len(response.outputs[0].contents.int64_contents) == 1


async def test_errors_reach_the_client_with_status_field_rule_and_value(
    tmp_path: Path, replicas: Sequence[Running]
) -> None:
    away = route("away", [("a", 10_000)])
    async with gateway_rig(tmp_path) as gateway:
        await gateway.serve([route("digits", [("a", 10_000)]), away], slices(replicas))
        for host, model, tensor, status, message in (
            (
                HOST_NAME,
                "digits",
                images(np.zeros((1, 63))),
                "INVALID_ARGUMENT",
                "inputs[0].shape: must be [-1, 64]",
            ),
            (HOST_NAME, "other", images(), "NOT_FOUND", "model: must be 'digits', got 'other'"),
            ("no.default.slipway.local", "digits", images(), "NOT_FOUND", "no service"),
            ("away.default.slipway.local", "away", images(), "UNAVAILABLE", "no replica of this service is"),
        ):
            async with client(gateway, host) as triton_client:
                with pytest.raises(InferenceServerException, match=re.escape(message)) as caught:
                    await triton_client.infer(model, [tensor])
            assert caught.value.status() == f"StatusCode.{status}"
            assert not caught.value.message().startswith("{"), "the gateway's own errors are text for gRPC"
        async with client(gateway) as triton_client:
            with pytest.raises(InferenceServerException, match="method: must be one of /inference") as caught:
                await triton_client.get_model_repository_index()
        assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
        answers = gateway.counts().answers()
        assert answers["default/digits-a/8080"].classes == (0, 0, 0, 3, 0)


async def test_stream_to_a_unary_runtime_is_refused_while_it_is_open(
    tmp_path: Path, replicas: Sequence[Running]
) -> None:
    async with gateway_rig(tmp_path) as gateway:
        await gateway.serve([route("digits", [("a", 10_000)])], slices(replicas))
        address = gateway.url.removeprefix("http://")
        async with grpc.aio.insecure_channel(address, options=addressed_to(HOST_NAME)) as channel:
            call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()
            assert await asyncio.wait_for(call.code(), 10) is grpc.StatusCode.UNIMPLEMENTED
            assert "method: must be one of /inference." in await call.details()


async def test_vanished_replica_is_unavailable(tmp_path: Path, replicas: Sequence[Running]) -> None:
    async with gateway_rig(tmp_path) as gateway, client(gateway) as triton_client:
        await gateway.serve(
            [route("digits", [("a", 10_000)])], [endpoint_slice("digits-a", [host()], port=1)]
        )
        with pytest.raises(InferenceServerException) as caught:
            await triton_client.infer("digits", [images()])
        assert caught.value.status() == "StatusCode.UNAVAILABLE"


async def test_message_of_many_megabytes_passes_both_ways(
    tmp_path: Path, replicas: Sequence[Running]
) -> None:
    many = np.repeat(IMAGES[:100], 200, axis=0)
    async with gateway_rig(tmp_path) as gateway, client(gateway) as triton_client:
        await gateway.serve([route("digits", [("a", 10_000)])], slices(replicas))
        result = await triton_client.infer("digits", [images(many)])
    assert len(result.as_numpy("predict")) == len(many)
    assert len(result.as_numpy("probabilities")) == len(many)


async def arms_of(gateway: GatewayRig, metadata: Sequence[tuple[tuple[str, str], ...]]) -> list[str]:
    """Return the arm that served each of these calls; its version must be the arm's."""
    message = service_pb2.ServerReadyRequest().SerializeToString()
    address = gateway.url.removeprefix("http://")
    arms = []
    async with grpc.aio.insecure_channel(address, options=addressed_to(HOST_NAME)) as channel:
        method = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
        for own in metadata:
            call = method(message, metadata=own)
            assert await call == b"\x08\x01"
            headers = dict(await call.initial_metadata())
            assert headers[SERVED_VERSION_HEADER] == f"digits-{headers[ARM_HEADER]}-v1"
            arms.append(str(headers[ARM_HEADER]))
    return arms


async def test_weights_and_stickiness_apply_to_grpc(tmp_path: Path, replicas: Sequence[Running]) -> None:
    both = slices(replicas)
    async with gateway_rig(tmp_path) as gateway:
        await gateway.serve([route("digits", [("a", 8000), ("b", 2000)])], both)
        counted = Counter(await arms_of(gateway, [()] * 200))
        assert counted["a"] > counted["b"] > 0
        forged = ((ARM_HEADER, "b"),)
        assert "a" in await arms_of(gateway, [forged] * 30)
        sticky = {"header": "x-user-id", "salt": "s"}
        await gateway.serve([route("digits", [("a", 5000), ("b", 5000)], sticky=sticky)], both)
        callers = [(("x-user-id", f"u{n}"),) for n in range(40)]
        first = await arms_of(gateway, callers)
        assert set(first) == {"a", "b"}
        assert await arms_of(gateway, callers) == first


async def test_calls_at_zero_wait_for_a_replica_and_time_out_as_calls_do(
    tmp_path: Path, replicas: Sequence[Running]
) -> None:
    digits_route = route("digits", [("a", 10_000)], on_demand="a")
    async with gateway_rig(tmp_path) as gateway, client(gateway) as triton_client:
        async with activator(gateway, CLUSTER) as held_backend:
            await gateway.serve([digits_route], [])
            with pytest.raises(InferenceServerException) as caught:
                await triton_client.infer("digits", [images()], client_timeout=0.3)
            assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
            await until_waiting(held_backend, lambda: 0)
            calls = [
                asyncio.create_task(triton_client.infer("digits", [images(IMAGES[:n])])) for n in range(1, 21)
            ]
            await until_waiting(held_backend, lambda: 20)
            held_backend.set_replicas([Endpoint(host(), replicas[0].port)])
            results = await asyncio.gather(*calls)
            assert [len(result.as_numpy("predict")) for result in results] == list(range(1, 21))
            with pytest.raises(
                InferenceServerException, match=re.escape("inputs[0].shape: must be")
            ) as caught:
                await triton_client.infer("digits", [images(np.zeros((1, 3)))])
            assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        async with activator(gateway, CLUSTER, deadline_seconds=0.05):
            with pytest.raises(InferenceServerException, match="no replica was ready in time") as caught:
                await triton_client.infer("digits", [images()])
            assert caught.value.status() == "StatusCode.UNAVAILABLE"
