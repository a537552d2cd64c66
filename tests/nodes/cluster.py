"""The cluster of the walk: its objects by kubectl, and predictions through its gateways."""

import math
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import httpx
import orjson

from serving.objects import Object
from serving.resources import names
from tests.nodes import walk_objects
from tests.rig.control_plane.kubectl import KUBECTL

KUBECONFIG = os.environ.get("SLIPWAY_NODES_KUBECONFIG", "")
PATIENCE = "300s"
"""For the pull of images of a gigabyte, and the start of everything after it."""
INPUTS = [{"name": "input", "datatype": "FP64", "shape": [1, 64], "data": [0.0] * 64}]
PATH = f"/{walk_objects.NAMESPACE}/digits/v2/models/digits/infer"


def kubectl(*arguments: str, objects: Sequence[Object] = ()) -> str:
    """Run kubectl, with these objects as its input."""
    assert KUBECTL is not None
    ended = subprocess.run(
        [KUBECTL, f"--kubeconfig={KUBECONFIG}", *arguments],
        input=orjson.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}).decode(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"kubectl {' '.join(arguments)}: {ended.stderr}"
    return ended.stdout


def apply(*objects: Object) -> None:
    kubectl("apply", "--filename=-", objects=objects)


def wait(condition: str, obj: str, namespace: str = walk_objects.NAMESPACE) -> None:
    kubectl(f"--namespace={namespace}", "wait", f"--for={condition}", obj, f"--timeout={PATIENCE}")


def items(*arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = orjson.loads(kubectl("get", *arguments, "--output=json"))["items"]
    return listed


def running(namespace: str, selector: str) -> list[dict[str, Any]]:
    """Return the Pods that do not end."""
    listed = items("pods", f"--namespace={namespace}", f"--selector={selector}")
    return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]


def pods(component: str) -> list[dict[str, Any]]:
    return running("slipway-system", f"app.kubernetes.io/component={component}")


def replicas() -> list[dict[str, Any]]:
    return running(walk_objects.NAMESPACE, f"{names.INFERENCE_LABEL}=digits")


def rolled_out() -> None:
    kubectl("--namespace=slipway-system", "rollout", "status", "deployment", f"--timeout={PATIENCE}")


@contextmanager
def forwarded(pod: str) -> Iterator[str]:
    """Yield the URL of a gateway's listener, through the API server and the kubelet."""
    assert KUBECTL is not None
    command = [
        KUBECTL,
        f"--kubeconfig={KUBECONFIG}",
        "--namespace=slipway-system",
        "port-forward",
        pod,
        ":8080",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"127\.0\.0\.1:[0-9]+", process.stdout.readline())
            assert address is not None
            yield f"http://{address[0]}"
        finally:
            process.terminate()


def predict(client: httpx.Client) -> httpx.Response:
    """Send a prediction of the digits' models; fail unless it is answered."""
    answer = client.post(PATH, json={"inputs": INPUTS})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["outputs"][0]["data"]) == 1
    return answer


def predict_through_each_gateway() -> None:
    for pod in pods("gateway"):
        with forwarded(pod["metadata"]["name"]) as url, httpx.Client(base_url=url, timeout=60) as client:
            predict(client)


@contextmanager
def load(gateway: str) -> Iterator[Counter[str]]:
    """Predict through the gateway of this Pod during the block; yield answers by arm, and `failed` ones."""
    with (
        forwarded(gateway) as url,
        httpx.Client(base_url=url, timeout=60) as client,
        _sending(lambda: client) as answers,
    ):
        yield answers


@contextmanager
def load_of_service() -> Iterator[Counter[str]]:
    """Predict during the block as clients of the gateways' Service do: each request goes to the next gateway
    whose endpoint is ready. Yield as `load` does.

    A node's proxy learns of a change within some tenths of a second, and this load within about a second.
    """
    with ExitStack() as stack:
        endpoints = stack.enter_context(_Endpoints())
        with _sending(endpoints.next) as answers:
            yield answers


class _Endpoints:
    """Clients of the gateways that the Service has as ready endpoints, one after the other."""

    def __init__(self) -> None:
        self._forwards: dict[str, ExitStack] = {}
        self._clients: dict[str, httpx.Client] = {}
        self._number = 0
        self._read_at = -math.inf

    def __enter__(self) -> Self:
        self._read()
        return self

    def __exit__(self, *error: object) -> None:
        for forward in self._forwards.values():
            forward.close()

    def next(self) -> httpx.Client:
        """Return the client of the next gateway."""
        if time.monotonic() - self._read_at > 0.5:
            self._read()
        self._number += 1
        clients = list(self._clients.values())
        return clients[self._number % len(clients)]

    def _read(self) -> None:
        selector = f"{names.SERVICE_NAME_LABEL}=slipway-gateway"
        slices = items("endpointslices", "--namespace=slipway-system", f"--selector={selector}")
        endpoints = [endpoint for each in slices for endpoint in each["endpoints"] or []]
        ready = {each["targetRef"]["name"] for each in endpoints if each["conditions"].get("ready", True)}
        for gone in self._clients.keys() - ready:
            del self._clients[gone]
            self._forwards.pop(gone).close()
        for new in ready - self._clients.keys():
            self._forwards[new] = forward = ExitStack()
            url = forward.enter_context(forwarded(new))
            self._clients[new] = forward.enter_context(httpx.Client(base_url=url, timeout=60))
        self._read_at = time.monotonic()


@contextmanager
def _sending(client: Callable[[], httpx.Client]) -> Iterator[Counter[str]]:
    answers: Counter[str] = Counter()
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            try:
                answers[predict(client()).headers[names.ARM_HEADER]] += 1
            except Exception as error:  # noqa: BLE001 any other answer is a failure too
                answers["failed"] += 1
                answers[f"failed: {error}"[:200]] += 1
            time.sleep(0.02)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield answers
    finally:
        ended.set()
        thread.join()


def gateway(node: str = "") -> str:
    """Return the name of the Pod of a gateway, on this node if one is named."""
    return next(
        str(pod["metadata"]["name"]) for pod in pods("gateway") if node in ("", pod["spec"]["nodeName"])
    )


def leader() -> str:
    """Return the Pod of the controllers that lead."""
    lease = "lease/slipway-controllers"
    identity = kubectl("--namespace=slipway-system", "get", lease, "--output=jsonpath={.spec.holderIdentity}")
    return identity.partition("_")[0]


def kill(pod: str) -> None:
    """Delete a Pod of the installation without grace."""
    kubectl("--namespace=slipway-system", "delete", "pod", pod, "--grace-period=0", "--force")


def await_replicas_on_two_nodes() -> None:
    """Wait until each arm has ready replicas on two nodes."""
    deadline = time.monotonic() + 120
    nodes: dict[str, set[str]] = {}
    while {len(each) for each in nodes.values()} != {2} and time.monotonic() < deadline:
        nodes.clear()
        for pod in replicas():
            if any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"]
            ):
                nodes.setdefault(pod["metadata"]["labels"][names.PREDICTOR_LABEL], set()).add(
                    pod["spec"]["nodeName"]
                )
        time.sleep(1)
    assert {len(each) for each in nodes.values()} == {2}, nodes


def await_answers_of(arm: str, answers: Counter[str]) -> None:
    """Wait until an arm has answered."""
    deadline = time.monotonic() + 120
    while not answers[arm] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert answers[arm], answers


def await_more(answers: Counter[str], number: int = 200) -> None:
    """Wait for more answers of the arms."""

    def answered() -> int:
        return answers["stable"] + answers["canary"]

    deadline, enough = time.monotonic() + 60, answered() + number
    while answered() < enough and time.monotonic() < deadline:
        time.sleep(0.1)
    assert answered() >= enough, answers
