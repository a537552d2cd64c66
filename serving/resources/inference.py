"""Inference: predictors with their model versions, weights, resources and replicas; routing."""

from typing import Annotated, Any, Literal

from pydantic import Field

from serving.resources.base import (
    ATOMIC,
    NAME_PATTERN,
    Base,
    Conditions,
    Duration,
    Name,
    Quantity,
    list_map,
    rules,
)
from serving.resources.routing import PredictorRouting, Routing
from serving.resources.scaling import ScalingSpec
from serving.resources.traffic_split import DEFAULT_WEIGHT, HEAVIEST_WEIGHT

OWN_FRAMEWORKS = ("sklearn", "pytorch", "transformers", "custom")
"""The frameworks of Slipway's runtimes, and `custom`, whose container the user's template defines."""
SHIPPED_ENGINES = ("sglang", "tgi", "triton", "vllm")
"""The engines whose manifests Slipway ships. The schema has their names, so that an API server refuses a
misspelt one."""
USERS_PREFIX = "own-"
"""Prefix of the names of users' engines, which the schema does not know: without it, the schema would have to
accept every name."""
Framework = Annotated[
    str,
    Field(
        max_length=63,
        pattern=rf"^({'|'.join(sorted((*OWN_FRAMEWORKS, *SHIPPED_ENGINES)))}"
        rf"|{USERS_PREFIX}[a-z0-9]([-a-z0-9]*[a-z0-9])?)$",
        description="The server of the model: `sklearn`, `pytorch` or `transformers` (Slipway's runtimes), an"
        " engine such as `vllm` or one of your own, `own-…` (docs/engines.md), or `custom`: the container of"
        " the template.",
    ),
]


class Gpu(Base):
    """A share of one GPU."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("has(self.memory) || has(self.cores)", "memory, cores or both must be set"),
            (
                "self.mechanism == 'auto' || (self.mechanism == 'mig') == has(self.type)",
                "type is required for mig, allowed for auto, and not allowed otherwise",
            ),
            (
                "self.mechanism != 'ack' || has(self.memory)",
                "ack shares cores only with memory: memory must be set",
            ),
        ),
    }
    memory: Annotated[Quantity | None, Field(description="Memory of the GPU.")] = None
    cores: Annotated[
        int | None,
        Field(ge=1, le=100, description="Share of the GPU's streaming multiprocessors, in percent."),
    ] = None
    mechanism: Annotated[
        Literal["auto", "mps", "mig", "hami", "ack", "dra"],
        Field(
            description="The mechanism that enforces the share: NVIDIA MPS or MIG, HAMi, cGPU of Alibaba"
            " Cloud ACK, or a claim by dynamic resource allocation. `auto` is mps on one machine; on a"
            " cluster the controllers choose mig (with `type`), ack, hami or mps by the resources of the"
            " nodes, and `status.predictors[].gpu` has the choice."
        ),
    ] = "auto"
    type: Annotated[
        Literal["A30", "A100-40GB", "A100-80GB", "H100-80GB", "H200", "B200"] | None,
        Field(
            description="Type of the GPU, which determines its MIG profiles; without it, `auto` never chooses"
            " mig."
        ),
    ] = None


class Resources(Base):
    """Resources of one replica; requests equal limits, so that it runs with the resources that were tuned."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    gpu: Gpu | None = None


class BatchingSpec(Base):
    """How a replica batches requests into one prediction."""

    batch_size: Annotated[
        int,
        Field(
            ge=1,
            le=1024,
            description="Maximum rows in one prediction; with 1, every request has its own prediction.",
        ),
    ] = 1
    timeout: Annotated[
        Duration,
        Field(
            description="Maximum time for which a request waits for others. With 0ms requests that arrive"
            " during a prediction form the next batch, and an idle replica never waits.",
            json_schema_extra=rules(("duration(self) <= duration('10s')", "must be at most 10s")),
        ),
    ] = "0ms"


class AutoScale(ScalingSpec):
    """How the predictor is scaled, as in an Autoscaler; minReplicas = maxReplicas fixes the count."""

    standby: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="Additional replicas that are started and get no traffic, so that scaling up takes"
            " one of them. On one machine only; Deployments on a cluster have none, and the condition"
            " ScalingActive says so.",
        ),
    ] = 0


def _open(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these fields and any others, which the Deployment validates."""
    described = {"properties": properties} if properties else {}
    return {"type": "object", **described, "x-kubernetes-preserve-unknown-fields": True}


def _keyed(key: str, type_: str) -> dict[str, Any]:
    """Return the schema of a list of open objects that are merged by the required field `key`."""
    return {"type": "array", "items": {**_open(**{key: {"type": type_}}), "required": [key]}, **list_map(key)}


_NULLABLE_TEXT = {"type": "string", "nullable": True}
_NULLABLE_MAP = {**_open(), "nullable": True}
"""Schemas of fields of a container. Null removes the value that Slipway sets."""
_CONTAINER = {
    **_open(
        name={"type": "string", "maxLength": 63, "pattern": NAME_PATTERN},
        env=_keyed("name", "string"),
        image=_NULLABLE_TEXT,
        imagePullPolicy=_NULLABLE_TEXT,
        ports=_keyed("containerPort", "integer"),
        volumeMounts=_keyed("mountPath", "string"),
        resources=_open(requests=_NULLABLE_MAP, limits=_NULLABLE_MAP),
        readinessProbe=_open(httpGet=_open(path={"type": "string"})),
    ),
    "required": ["name"],
}
"""A container, with the schemas of the fields that Slipway reads or merges, so that an error in one of them
names its path. The Deployment validates the other fields."""


_ObjectName = Annotated[str | None, Field(min_length=1, max_length=253)]
_PodList = Annotated[
    list[dict[str, Any]], Field(max_length=64, json_schema_extra={"items": _open(), **ATOMIC})
]
"""A list of a Pod's spec, which the Deployment validates."""


class TemplateMetadata(Base):
    """Additional metadata of a predictor's Pods."""

    labels: Annotated[
        dict[str, str],
        Field(
            description="Copied to the Pod, for Kueue or Volcano for example; those of `slipway.dev` are"
            " Slipway's own, and refused.",
            json_schema_extra={"additionalProperties": {"type": "string"}},
        ),
    ] = {}
    annotations: Annotated[
        dict[str, str],
        Field(
            description="Copied to the Pod. `slipway.dev/zygote: disabled` starts replicas as ordinary new"
            " processes.",
            json_schema_extra={"additionalProperties": {"type": "string"}},
        ),
    ] = {}


class PredictorTemplate(Base):
    """Additions to a predictor's Pods: a custom container that replaces the runtime, sidecars, and fields of
    the Pod's spec for scheduling and security.
    """

    metadata: TemplateMetadata = TemplateMetadata()
    containers: Annotated[
        list[dict[str, Any]],
        Field(
            # Without a bound a cluster rejects the rule that looks for a name: its worst-case cost is too
            # high.
            max_length=16,
            description="Containers merged by name into the Pod; the one named `predictor` serves on port"
            " 8080, or, with framework `custom`, by HTTP/2 on its port named `h2c`, `grpc` or `http2`.",
            json_schema_extra={"items": _CONTAINER, **list_map("name")},
        ),
    ] = []
    node_selector: Annotated[
        dict[str, str],
        Field(
            description="Labels of the nodes that may run the Pods, beside those that a share of a GPU"
            " needs.",
            json_schema_extra={"additionalProperties": {"type": "string"}},
        ),
    ] = {}
    affinity: Annotated[
        dict[str, Any], Field(description="Rules of nodes and other Pods.", json_schema_extra=_open())
    ] = {}
    tolerations: _PodList = []
    topology_spread_constraints: _PodList = []
    priority_class_name: _ObjectName = None
    scheduler_name: _ObjectName = None
    runtime_class_name: _ObjectName = None
    service_account_name: _ObjectName = None
    image_pull_secrets: Annotated[
        list[dict[str, Any]],
        Field(
            max_length=16,
            description="Secrets with the logins of the registries of images and models.",
            json_schema_extra=_keyed("name", "string"),
        ),
    ] = []
    security_context: Annotated[
        dict[str, Any],
        Field(description="Of the Pod; a container has its own.", json_schema_extra=_open()),
    ] = {}


class Predictor(Base):
    """One predictor, an arm of the traffic split."""

    name: Annotated[Name, Field(max_length=30)]
    model_version: Annotated[Name, Field(description="A ModelVersion of this namespace.")]
    traffic_weight: Annotated[
        int,
        Field(ge=0, le=HEAVIEST_WEIGHT, description="Share of traffic, relative to the sum of all weights."),
    ] = DEFAULT_WEIGHT
    resources: Resources = Resources()
    batching: BatchingSpec | None = None
    auto_scale: AutoScale = AutoScale()
    prefetch: Annotated[
        bool,
        Field(
            description="Whether every node that may run the Pods fetches their images, the model's too, in"
            " advance and keeps them. On clusters with image volumes."
        ),
    ] = False
    routing: PredictorRouting = PredictorRouting()
    template: PredictorTemplate | None = None


class InferenceSpec(Base):
    """One endpoint over one or more predictors."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            (
                "self.predictors.exists(p, p.trafficWeight > 0)",
                "at least one predictor needs a trafficWeight above 0",
            ),
            (
                (
                    "self.framework != 'custom' || self.predictors.all(p, has(p.template) && "
                    "p.template.containers.exists(c, c.name == 'predictor'))"
                ),
                "framework custom needs a container named predictor in every predictor's template",
            ),
            (
                (
                    "self.framework != 'sklearn' || self.predictors.all(p, !has(p.resources) ||"
                    " !has(p.resources.gpu))"
                ),
                "the runtime of framework sklearn does not use a GPU",
            ),
            (
                (
                    "self.framework != 'custom' || self.predictors.all(p, !has(p.batching) || "
                    "p.batching.batchSize == 1)"
                ),
                "framework custom does not batch: predictors[].batching.batchSize must be 1",
            ),
        ),
    }
    framework: Framework
    predictors: Annotated[
        list[Predictor], Field(min_length=1, max_length=32, json_schema_extra=list_map("name"))
    ]
    routing: Routing = Routing()


class PrefetchStatus(Base):
    """The nodes with the images of the newest revision."""

    nodes: Annotated[int, Field(description="Nodes that may run the Pods.")] = 0
    ready_nodes: Annotated[int, Field(description="Those that have all images.")] = 0


class GpuStatus(Base):
    """The mechanism that `auto` is."""

    mechanism: Annotated[str, Field(description="Mechanism of the newest revision.")] = ""
    message: Annotated[str, Field(description="Why it was chosen.")] = ""


class PredictorStatus(Base):
    """The state of one predictor."""

    name: str
    model_version: str = ""
    revision: Annotated[
        str, Field(description="Deployment that serves this predictor; empty until one is proven.")
    ] = ""
    candidate_revision: Annotated[str, Field(description="Deployment that is being proven.")] = ""
    replicas: int = 0
    ready_replicas: int = 0
    traffic_percent: Annotated[float, Field(description="Current share of traffic, in percent.")] = 0
    prefetch: Annotated[
        PrefetchStatus | None, Field(description="Only while images are fetched to nodes in advance.")
    ] = None
    gpu: Annotated[
        GpuStatus | None,
        Field(description="Only with a share of a GPU whose `mechanism` is `auto`, once it can be rendered."),
    ] = None
    reason: str = ""
    message: str = ""


class InferenceStatus(Base):
    """The address, the effective traffic split and the state of every predictor."""

    url: Annotated[str, Field(description="Address for clients.")] = ""
    predictors: Annotated[list[PredictorStatus], Field(json_schema_extra=list_map("name"))] = []
    traffic: Annotated[str, Field(description="Effective traffic split: `stable 90%, canary 10%`.")] = ""
    observed_generation: int = 0
    conditions: Conditions = []
