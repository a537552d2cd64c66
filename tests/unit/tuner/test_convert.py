"""Conversion of Morphling's manifests, with a note for every field without an equivalent."""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from serving.embedded.apiserver.writes import write_path
from serving.errors import UserError
from serving.resources import kinds
from serving.resources.tuning.experiment import ProfilingExperimentSpec
from tests.objects.stored_kinds import STORED_KINDS
from tuner.convert.experiment import Converted, convert
from tuner.specs.space import Space

RESNET = """
apiVersion: morphling.kubedl.io/v1alpha1
kind: ProfilingExperiment
metadata: {name: resnet, namespace: team, labels: {a: b}}
spec:
  objective: {type: maximize, objectiveMetricName: qps}
  algorithm: {algorithmName: random}
  parallelism: 2
  maxNumTrials: 9
  serviceProgressDeadline: 90
  tunableParameters:
  - category: resource
    parameters:
    - {name: cpu, parameterType: int, feasibleSpace: {min: "1", max: "4", step: "1"}}
    - {name: memory, parameterType: discrete, feasibleSpace: {list: [1Gi, 2Gi]}}
  - category: env
    parameters:
    - {name: GPU_MEM, parameterType: double, feasibleSpace: {min: "0.20", max: "1.01", step: "0.20"}}
  - category: env
    parameters:
    - {name: batch.size, parameterType: discrete, feasibleSpace: {list: ["1", "4"]}}
    - {name: DTYPE, parameterType: discrete, feasibleSpace: {list: [int8, fp16]}}
  servicePodTemplate:
    template:
      metadata: {annotations: {x: y}}
      spec:
        containers:
        - name: server
          image: example/resnet:1
          command: [serve]
          env: [{name: MODEL_NAME, value: ResNet/50_v1}, {name: A, value: "1"}, {name: A, value: 2}]
          resources: {limits: {cpu: 1, nvidia.com/gpu: "1"}}
          readinessProbe: {httpGet: {path: /ok, port: 8080}}
        restartPolicy: Always
  clientTemplate:
    spec:
      template:
        spec:
          containers:
          - name: client
            image: example/client
            env:
            - {name: LOCUST_NUM_USERS, value: 40}
            - {name: LOCUST_RUN_TIME, value: 1m}
            - {name: FAIL_RATIO, value: "0.025"}
            - {name: PRINTLOG, value: true}
          restartPolicy: Never
      backoffLimit: 1
"""


_PARSED: dict[str, Any] = yaml.safe_load(RESNET)
"""Parsed once: PyYAML takes longer for it than the conversion, and Hypothesis asks for each example."""


def manifest(**spec: Any) -> dict[str, Any]:
    """Return the manifest above with fields of its spec replaced, or removed by None."""
    body = copy.deepcopy(_PARSED)
    body["spec"] = {key: value for key, value in (body["spec"] | spec).items() if value is not None}
    return body


def advice(converted: Converted) -> dict[str, str]:
    return {note.path: note.advice for note in converted.notes}


def parameter(category: str, name: str, type_: str = "discrete", **space: Any) -> dict[str, Any]:
    entry = {"name": name, "parameterType": type_, "feasibleSpace": space}
    return manifest(tunableParameters=[{"category": category, "parameters": [entry]}])


def container(**fields: Any) -> dict[str, Any]:
    return manifest(
        servicePodTemplate={"template": {"spec": {"containers": [{"name": "c", "image": "x"} | fields]}}}
    )


def accepted(body: dict[str, Any]) -> dict[str, Any]:
    request = write_path.WriteRequest(
        STORED_KINDS, write_path.WriteOptions("test"), now="2026-01-01T00:00:00Z", uid="u", suffix="abcde"
    )
    namespace = body["metadata"].get("namespace", "default")
    return dict(write_path.create(kinds.PROFILING_EXPERIMENT, namespace, body, request).object)


def test_experiment_is_converted_to_an_equivalent_one() -> None:
    converted = convert(manifest())
    assert converted.manifest["metadata"] == {"name": "resnet", "namespace": "team", "labels": {"a": "b"}}
    spec = converted.manifest["spec"]
    assert spec["target"] == {
        "modelVersion": "resnet-50-v1",
        "framework": "custom",
        "template": {
            "metadata": {"annotations": {"x": "y"}},
            "containers": [
                {
                    "name": "predictor",
                    "image": "example/resnet:1",
                    "command": ["serve"],
                    "env": [{"name": "MODEL_NAME", "value": "ResNet/50_v1"}, {"name": "A", "value": "2"}],
                    "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": "1"}},
                    "readinessProbe": {"httpGet": {"path": "/ok", "port": 8080}},
                }
            ],
        },
    }
    space = Space.of(ProfilingExperimentSpec.model_validate(spec))
    assert {axis.label: axis.values for axis in space.axes} == {
        "resource/cpu": ("1", "2", "3", "4"),
        "resource/memory": ("1Gi", "2Gi"),
        "env/GPU_MEM": ("0.20", "0.4", "0.6", "0.8", "1"),
        "env/BATCH_SIZE": ("1", "4"),
        "env/DTYPE": ("int8", "fp16"),
    }
    assert spec["objective"] == {"type": "maximize", "objectiveMetricName": "throughput"}
    assert spec["algorithm"] == {"algorithmName": "random"}
    assert spec["load"] == {"mode": "closed", "levels": ["40"], "windowSeconds": 60}
    assert spec["constraints"] == [{"metric": "errorRate", "atMost": "2.5%"}]
    assert (spec["maxNumTrials"], spec["parallelism"], spec["serviceProgressDeadline"]) == (9, 2, "90s")


def test_converted_experiment_is_valid_and_converts_to_itself() -> None:
    converted = convert(manifest())
    assert accepted(copy.deepcopy(converted.manifest))["spec"].items() >= {"maxNumTrials": 9}.items()
    assert convert(converted.manifest) == Converted(converted.manifest, ())


def test_every_field_without_an_equivalent_has_a_note() -> None:
    spec: dict[str, Any] = manifest()["spec"]
    pod = spec["servicePodTemplate"]["template"]["spec"]
    pod |= {"volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"a": "b"}, "dnsPolicy": "None"}
    pod["containers"][0] |= {
        "ports": [{"containerPort": 8500}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    pod["containers"].append({"name": "side", "image": "y"})
    spec["servicePodTemplate"]["metadata"] = {"name": "n"}
    spec["algorithm"]["algorithmSettings"] = [{"name": "k", "value": "v"}]
    spec["requestTemplate"] = "https://example/picture.jpg"
    spec["typo"] = 1
    body = manifest(**spec) | {"status": {"trialsTotal": 3}}
    body["metadata"] |= {
        "uid": "u",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    pod_path, client = "spec.servicePodTemplate.template.spec", "spec.clientTemplate"
    env = f"{client}.spec.template.spec.containers[0].env"
    converted = convert(body)
    assert set(advice(converted)) == {
        "status",
        "metadata.uid",
        "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration",
        "spec.typo",
        "spec.tunableParameters[2].parameters[0].name",
        "spec.tunableParameters[2].parameters[1].parameterType",
        "spec.servicePodTemplate.metadata",
        f"{pod_path}.volumes",
        f"{pod_path}.nodeSelector",
        f"{pod_path}.dnsPolicy",
        f"{pod_path}.containers[0].ports[0]",
        f"{pod_path}.containers[0].volumeMounts",
        f"{pod_path}.containers[0].image",
        f"{pod_path}.containers[1]",
        client,
        f"{env}[3]",
        "spec.requestTemplate",
        "spec.algorithm.algorithmSettings[0]",
    }
    assert [item["name"] for item in converted.manifest["spec"]["target"]["template"]["containers"]] == [
        "predictor",
        "side",
    ]
    accepted(converted.manifest)


@pytest.mark.parametrize(
    ("body", "name", "values", "path", "words"),
    [
        (
            parameter("resource", "nvidia.com/gpumem", list=["2000", "4Gi"]),
            "gpu.memory",
            ["2000Mi", "4Gi"],
            "",
            "",
        ),
        (
            parameter("resource", "gpucores", list=["20", "40"]),
            "gpu.cores",
            ["20", "40"],
            ".name",
            "becomes gpu.cores",
        ),
        (
            parameter("args", "threads", list=["1", "2"]),
            "threads",
            ["1", "2"],
            ".name",
            "Slipway passes --threads=VALUE",
        ),
        (parameter("env", "omp.threads", list=["1"]), "OMP_THREADS", ["1"], ".name", "becomes OMP_THREADS"),
        (parameter("env", "BATCH_SIZE", list=["1"]), "BATCH_SIZE", ["1"], ".name", "tune batchSize"),
        (parameter("env", "A", list=["1"], min="1"), "A", ["1"], ".feasibleSpace.min", "come from the list"),
    ],
)
def test_parameter_with_another_meaning_has_a_note(
    body: dict[str, Any], name: str, values: list[str], path: str, words: str
) -> None:
    converted = convert(body)
    (item,) = converted.manifest["spec"]["tunableParameters"][0]["parameters"]
    assert (item["name"], item["feasibleSpace"]["list"]) == (name, values)
    if path:
        assert words in advice(converted)[f"spec.tunableParameters[0].parameters[0]{path}"]


def test_parameter_that_cannot_be_tuned_is_left_out_with_a_note() -> None:
    lost = [
        {"name": name, "feasibleSpace": {"list": ["1"]}} for name in ("nvidia.com/gpu", "storage", "fpga")
    ]
    kept = {"name": "cpu", "feasibleSpace": {"list": ["1"]}}
    converted = convert(manifest(tunableParameters=[{"category": "resource", "parameters": [*lost, kept]}]))
    assert [item["name"] for item in converted.manifest["spec"]["tunableParameters"][0]["parameters"]] == [
        "cpu"
    ]
    for i, words in enumerate(
        ("no number of GPUs: use gpu.memory", "does not tune storage", "Morphling sets ephemeral-storage")
    ):
        assert words in advice(converted)[f"spec.tunableParameters[0].parameters[{i}]"]


def test_model_version_is_the_given_one() -> None:
    converted = convert(manifest(), model_version="resnet-v3")
    assert converted.manifest["spec"]["target"]["modelVersion"] == "resnet-v3"
    assert not [path for path in advice(converted) if path.endswith(".image")]


@pytest.mark.parametrize(
    ("given_", "load"),
    [
        ('{"path": "/v1/predict", "body": {"x": [1]}}', {"path": "/v1/predict", "body": '{"x": [1]}'}),
        ('{"path": "/p", "method": "GET"}', {"path": "/p", "method": "GET", "body": ""}),
        (
            '{"path": "/p", "headers": {"X-Id": 5}}',
            {"path": "/p", "headers": {"X-Id": "5"}, "body": ""},
        ),
    ],
)
def test_request_with_a_path_is_converted(given_: str, load: dict[str, Any]) -> None:
    converted = convert(manifest(requestTemplate=given_, clientTemplate=None))
    assert converted.manifest["spec"]["load"] == {"requestTemplate": load}
    assert "constraints" not in converted.manifest["spec"]
    accepted(converted.manifest)


@pytest.mark.parametrize(
    "given_", ['{"path": "/p", "url": "x"}', '{"path": "p"}', '{"path": "/p", "method": "PATCH"}', "[1", "3"]
)
def test_invalid_request_is_left_out_with_a_note(given_: str) -> None:
    converted = convert(manifest(requestTemplate=given_, clientTemplate=None))
    assert "load" not in converted.manifest["spec"]
    assert "write load.requestTemplate" in advice(converted)["spec.requestTemplate"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "manifest: must be an object, and is []"),
        ({}, "apiVersion: must be morphling.kubedl.io/v1alpha1 or"),
        (
            manifest() | {"kind": "Trial"},
            "kind: must be ProfilingExperiment, and is 'Trial'",
        ),
        (manifest() | {"metadata": {}}, "metadata.name: is missing"),
        (
            manifest(objective={"type": "minimize", "objectiveMetricName": "qps"}),
            "spec.objective.type: must be maximize for qps",
        ),
        (
            manifest(objective={"objectiveMetricName": "GPUMemConsumptionPerQPS"}),
            "spec.objective.objectiveMetricName: must be qps",
        ),
        (
            manifest(algorithm={"algorithmName": "tpe"}),
            "spec.algorithm.algorithmName: must be one of grid, random and BayesianOpt",
        ),
        (manifest(maxNumTrials=0), "spec.maxNumTrials: "),
        (manifest(maxNumTrials="4"), "spec.maxNumTrials: must be a whole number, and is '4'"),
        (manifest(parallelism=65), "spec.parallelism: "),
        (
            manifest(tunableParameters=[]),
            "spec.tunableParameters: has no parameter that Slipway can tune",
        ),
        (
            parameter("batching", "x", list=["1"]),
            "spec.tunableParameters[0].category: must be one of resource, env, args",
        ),
        (
            parameter("resource", "cpu", list=["0"]),
            "spec.tunableParameters[0].parameters[0].feasibleSpace: cpu must be",
        ),
        (
            parameter("resource", "cpu", list=["x"]),
            "spec.tunableParameters[0].parameters[0].feasibleSpace.list[0]: 'x' is not",
        ),
        (
            parameter("env", "A", "int", min="1", max="2"),
            "spec.tunableParameters[0].parameters[0].feasibleSpace.step: is missing",
        ),
        (
            parameter("env", "A", "int", min="1", max="-2", step="1"),
            "spec.tunableParameters[0].parameters[0].feasibleSpace.max: ",
        ),
        (
            parameter("env", "A", "categorical"),
            "spec.tunableParameters[0].parameters[0].feasibleSpace.list: is missing",
        ),
        (
            parameter("env", "A", "bool", list=["1"]),
            "spec.tunableParameters[0].parameters[0].parameterType: must be one of",
        ),
        (
            parameter("args", "a b", list=["1"]),
            "spec.tunableParameters[0].parameters[0].name: 'a b' is not the name of an argument",
        ),
        (manifest(servicePodTemplate=None), "spec.servicePodTemplate.template.spec.containers: is empty"),
        (
            container(env=[{"value": "x"}]),
            "spec.servicePodTemplate.template.spec.containers[0].env[0].name: is missing",
        ),
        (
            container(env={}),
            "spec.servicePodTemplate.template.spec.containers[0].env: must be a list, and is {}",
        ),
        (
            container(args=[b"x"]),
            "spec.servicePodTemplate.template.spec.containers[0].args[0]: JSON has no bytes",
        ),
        (
            manifest(
                clientTemplate={
                    "spec": {
                        "template": {
                            "spec": {"containers": [{"env": [{"name": "LOCUST_NUM_USERS", "value": "many"}]}]}
                        }
                    }
                }
            ),
            "spec.clientTemplate.spec.template.spec.containers[0].env[0].value: must be a whole number",
        ),
        (
            manifest(
                clientTemplate={
                    "spec": {
                        "template": {
                            "spec": {"containers": [{"env": [{"name": "FAIL_RATIO", "value": "20"}]}]}
                        }
                    }
                }
            ),
            "spec.clientTemplate.spec.template.spec.containers[0].env[0].value: must be a share from 0 to 1",
        ),
    ],
)
def test_unconvertible_field_is_refused_with_its_path(body: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        convert(body)
    assert str(error.value).startswith(message)


def test_invalid_parameter_after_a_removed_one_is_refused_with_its_original_path() -> None:
    env = {"category": "env", "parameters": [{"name": "A", "feasibleSpace": {"list": ["1"]}}]}
    bad = {
        "category": "env",
        "parameters": [{"name": "B", "parameterType": "int", "feasibleSpace": {"list": ["1.5"]}}],
    }
    with pytest.raises(UserError, match=r"^spec\.tunableParameters\[2\]\.parameters\[0\]\.feasibleSpace: "):
        convert(manifest(tunableParameters=[env, {"category": "args"}, bad]))
    with pytest.raises(
        UserError, match=r"^spec\.tunableParameters\[1\]\.parameters\[0\]\.name: A is tuned twice"
    ):
        convert(manifest(tunableParameters=[env, env]))


def test_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UserError, match="is nested deeper than 50 levels"):
        convert(container(args=loop))


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["1", "qps", "cpu", "1Gi"]),
    nested,
    max_leaves=8,
)
# Python writes no integer of 5,000 digits, and Hypothesis writes the strategies of what it reports.
ODD = JSON | st.sampled_from([b"", {1: 2}, {"name": "env", "env": [{}]}]) | st.builds(lambda: 10**5000)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, child in inner for place in places(child, (*path, key)))]


PLACES = [place for place in places(manifest()) if place]


def put(node: Any, place: tuple[Any, ...], value: Any) -> None:
    """Set the value if its place still exists: an earlier change may have removed it."""
    for key in place[:-1]:
        if not has(node, key):
            return
        node = node[key]
    if isinstance(node, dict) or has(node, place[-1]):
        node[place[-1]] = value


def has(node: Any, key: Any) -> bool:
    return (
        key in node
        if isinstance(node, dict)
        else isinstance(node, list) and isinstance(key, int) and key < len(node)
    )


@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=3))
def test_arbitrary_manifest_becomes_a_space_or_is_refused(changes: list[tuple[Any, Any]]) -> None:
    body = manifest()
    for place, value in changes:
        put(body, place, value)
    try:
        converted = convert(body)
    except UserError:
        return
    assert convert(converted.manifest).manifest == converted.manifest
    Space.of(ProfilingExperimentSpec.model_validate(converted.manifest["spec"]))


LONG = 10**5000


@pytest.mark.parametrize("value", [LONG, {"a": LONG}, [[-LONG]]], ids=["integer", "object", "array"])
def test_number_that_is_too_long_to_print_is_refused(value: Any) -> None:
    with pytest.raises(UserError, match=r"apiVersion.*64 bits"):
        convert(manifest() | {"apiVersion": value})


@given(ODD)
def test_arbitrary_value_is_refused(body: Any) -> None:
    with pytest.raises(UserError):
        convert(body)
