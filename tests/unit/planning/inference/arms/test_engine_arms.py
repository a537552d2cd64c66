"""Arms of engines: the container is made of the manifest and the predictor's fields."""

from typing import Any

from serving.engines import shipped
from serving.objects import Object
from serving.planning.inference import planner, revision
from serving.resources import kinds
from serving.resources.inference import Predictor
from tests.fakes.inference_world import InferenceWorld, ready_version

NOW = "2026-01-01T00:00:00Z"


def container(**fields: Any) -> Object:
    predictor = Predictor.model_validate({"name": "a", "modelVersion": "v", **fields})
    rendered = revision.render("chat", "vllm", predictor, ready_version("v"), shipped()["vllm"])
    predictor_container: Object = rendered.template["spec"]["containers"][0]
    return predictor_container


def test_container_has_the_manifests_image_command_and_probes() -> None:
    server = container()
    assert server["image"].startswith("docker.io/vllm/")
    assert server["command"] == ["vllm", "serve"]
    assert server["args"][:3] == ["/mnt/model/models", "--served-model-name", "$(SLIPWAY_MODEL_NAME)"]
    assert server["readinessProbe"]["httpGet"] == {"path": "/health", "port": 8080}
    assert {"name": "SLIPWAY_MODEL_NAME", "value": "chat"} in server["env"]
    assert server["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_fields_of_the_predictor_become_arguments() -> None:
    assert "--max-num-seqs=32" in container(batching={"batchSize": 32})["args"]
    assert not any("--max-num-seqs" in argument for argument in container()["args"])


def test_arguments_of_the_template_follow_those_of_the_manifest() -> None:
    own = {"containers": [{"name": "predictor", "args": ["--max-model-len=4096"]}]}
    arguments = container(template=own)["args"]
    assert arguments[0] == "/mnt/model/models"
    assert arguments[-1] == "--max-model-len=4096"


def test_arguments_are_those_of_the_manifest_when_the_template_has_null() -> None:
    own = {"containers": [{"name": "predictor", "args": None}]}
    assert container(template=own)["args"] == container()["args"]


def test_replica_of_an_engine_takes_no_passed_socket_and_is_proven_by_its_readiness() -> None:
    predictor = Predictor.model_validate({"name": "a", "modelVersion": "v"})
    rendered = revision.render("chat", "vllm", predictor, ready_version("v"), shipped()["vllm"])
    annotations = rendered.template["metadata"]["annotations"]
    assert "slipway.dev/socket-port" not in annotations
    assert annotations["slipway.dev/gateway-port"] == str(shipped()["vllm"].port)
    assert rendered.probe_paths == ("/health",)


def test_port_of_an_engine_that_connects_to_itself_is_not_kept_for_the_gateway() -> None:
    predictor = Predictor.model_validate({"name": "a", "modelVersion": "v"})
    rendered = revision.render("chat", "sglang", predictor, ready_version("v"), shipped()["sglang"])
    assert "slipway.dev/gateway-port" not in rendered.template["metadata"]["annotations"]


def test_inference_of_an_unknown_framework_is_refused_with_the_known_ones() -> None:
    world = InferenceWorld({"name": "a", "modelVersion": "v", "trafficWeight": 1})
    world.inference["spec"]["framework"] = "own-vlm"
    plan = planner.plan(world.now(engines=shipped()), NOW)
    assert plan.actions == ()
    ready = next(c for c in plan.status["conditions"] if c["type"] == "Ready")  # type: ignore[index]
    assert (ready["status"], ready["reason"]) == ("False", "UnknownFramework")
    assert "must be one of custom, pytorch, sglang" in ready["message"]


def test_route_of_an_engine_reports_its_tokens() -> None:
    world = InferenceWorld({"name": "a", "modelVersion": "v", "trafficWeight": 1})
    world.inference["spec"]["framework"] = "vllm"
    plan = planner.plan(world.now(engines=shipped()), NOW)
    (route,) = (a.object for a in plan.actions if getattr(a, "kind", None) is kinds.ROUTE)  # type: ignore[union-attr]
    assert route["spec"]["tokenUsage"] == "continuous"
