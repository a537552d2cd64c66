"""The revision of a predictor: a Pod template, and a name with the template's hash.

The same template in two arms makes two revisions, as the labels are part of it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from serving import errors
from serving.objects import Object
from serving.planning.gpu import pod as gpu_pod
from serving.planning.gpu.share import Mechanism, RenderedShare
from serving.planning.inference import model_volume, pod_defaults
from serving.planning.models import version
from serving.planning.models.volume import VolumeSource
from serving.resources import kinds, names
from serving.resources.engine import Engine
from serving.resources.inference import BatchingSpec, Predictor, PredictorTemplate
from serving.settings import DEFAULTS, RuntimeImageSettings

NAME_LIMIT = 63
"""Most characters of a DNS label: of the name of a Service and the value of a label."""
CONTAINER = "predictor"
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""A DNS-1035 label: before Kubernetes 1.36 the name of a Service must not begin with a digit."""
_READY_PATH = "/v2/health/ready"
_GRPC_READY = "/inference.GRPCInferenceService/ServerReady"
_PROTECTED_VARIABLES = (names.MODEL_VERSION_ENV, names.MODEL_DIGEST_ENV, names.MODEL_FILES_DIGEST_ENV)
"""Variables of the predictor's container by which a runtime verifies the model that it loads."""
_TERMINATION = {"terminationMessagePolicy": "FallbackToLogsOnError"}
"""Of servers whose last line of output is why they end; a custom container's template decides for itself."""


class ServedPort(NamedTuple):
    """The port of a revision's replicas, and whether they speak HTTP/2 without TLS there."""

    number: int
    h2c: bool = False


@dataclass(frozen=True)
class Revision:
    """One rendered Pod template of a predictor."""

    name: str
    """Name of the Deployment, the Service and the Route's backend."""
    arm: str
    model_version: str
    port: ServedPort
    template: Object
    probe_paths: tuple[str, ...]
    """Paths to GET through the gateway; all must answer 200 before the revision gets traffic. Of a port that
    speaks HTTP/2, the full name of a gRPC method."""
    claim: Object | None = None
    """Spec of the ResourceClaimTemplate that the Pods use, if any; it has the revision's name."""
    volume: VolumeSource = "image"
    """Source of the model's files."""
    mechanism: Mechanism | None = None
    """Of the share of a GPU, if there is one."""


def hash8(value: Any) -> str:
    """Return 8 hex digits of the sha256 of a JSON value's canonical text."""
    # Each reconcile computes it for every arm: orjson takes a tenth of json's time.
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:8]


def is_usable_name(name: str) -> bool:
    """Whether an Inference of this name can have children: it is a DNS label that begins with a letter."""
    return len(name) <= NAME_LIMIT and _LABEL.fullmatch(name) is not None


def revision_name(inference: str, arm: str, hash_: str) -> str:
    """Return `<inference>-<arm>-<hash>` in at most 63 characters; a cut name gets a second hash."""
    stem = f"{inference}-{arm}"
    room = NAME_LIMIT - len(f"-{hash_}")
    if len(stem) > room:
        suffix = f"-{hash8([inference, arm])}"
        stem = f"{stem[: room - len(suffix)].rstrip('-')}{suffix}"
    return f"{stem}-{hash_}"


def autoscaler_name(inference: str, arm: str) -> str:
    """Return `<inference>-<arm>`, with a hash appended if that is ambiguous or too long.

    The arm `b-c` of Inference `a` and the arm `c` of Inference `a-b` must not share an Autoscaler. An arm's
    PodDisruptionBudget has the name of its Autoscaler.
    """
    plain = f"{inference}-{arm}"
    if "-" not in arm and len(plain) <= NAME_LIMIT:
        return plain
    return revision_name(inference, arm, hash8([inference, arm]))


def render(
    inference: str,
    framework: str,
    predictor: Predictor,
    model_version: Mapping[str, Any],
    engine: Engine | None = None,
    *,
    images: RuntimeImageSettings = DEFAULTS.runtime_images,
    volume: VolumeSource = "image",
) -> Revision:
    """Return the revision of a predictor whose ModelVersion is ready.

    Args:
        inference: name of the Inference, which is also the model's name for clients.
        framework: name of a runtime or an engine, or `custom`.
        predictor: the arm.
        model_version: the ModelVersion, with the status of its image.
        engine: the engine, if the framework is one.
        images: the settings of Slipway's own images.
        volume: source of the model's files.

    Raises:
        errors.Permanent: `GpuShareInvalid`, the mechanism cannot give this share of a GPU; `TemplateInvalid`,
            the predictor's template has a label of Slipway, overrides the share of a GPU, or sets a variable
            of _PROTECTED_VARIABLES.
    """
    user_template = predictor.template or PredictorTemplate()
    _refuse_variables(predictor)
    version_name = model_version["metadata"]["name"]
    port = _served_port(framework, user_template.containers) if engine is None else ServedPort(engine.port)
    server = _runtime(framework, predictor, port, images) if engine is None else _engine(engine, predictor)
    base = _container(server, _model_variables(inference, model_version), predictor, port=port)
    labels = {names.INFERENCE_LABEL: inference, names.PREDICTOR_LABEL: predictor.name}
    pulls_slipway_image = is_runtime(framework, engine) or volume == "copy"
    template: Object = {
        "metadata": {
            "labels": {**_user_labels(predictor.name, user_template), **labels},
            "annotations": {
                **_ports(framework, port, engine),
                **user_template.metadata.annotations,
                names.MODEL_VERSION_ANNOTATION: version_name,
            },
        },
        "spec": _pod_fields(user_template, images.pull_secret if pulls_slipway_image else ""),
    }
    share = predictor.resources.gpu
    claim = mechanism = None
    if share is not None:
        mechanism = gpu_pod.mechanism_of(share)
        shared = gpu_pod.with_share(template, base, share)
        template, base, claim = shared.template, shared.container, shared.share.claim
        _refuse_overrides(predictor.name, user_template, shared.share)
    containers = _merge_containers([base], user_template.containers, adds_arguments=engine is not None)
    spec = {**template["spec"], "containers": containers}
    template = {**template, "spec": model_volume.with_model(spec, model_version, volume, images)}
    name = revision_name(inference, predictor.name, hash8([template, claim] if claim else template))
    # The reference to the claim and the label have the revision's name, so that the hash cannot cover them.
    if claim is not None:
        template = gpu_pod.with_claim(template, name)
    meta = {**template["metadata"], "labels": {**template["metadata"]["labels"], names.REVISION_LABEL: name}}
    paths = _probe_paths(inference, framework, containers[0], port, engine)
    template = {**template, "metadata": meta}
    return Revision(name, predictor.name, version_name, port, template, paths, claim, volume, mechanism)


def _model_variables(inference: str, model_version: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        names.MODEL_NAME_ENV: inference,
        names.MODEL_VERSION_ENV: model_version["metadata"]["name"],
        names.MODEL_DIR_ENV: f"{names.MODEL_MOUNT}/models",
        names.MODEL_DIGEST_ENV: model_version["status"]["digest"],
        names.MODEL_FILES_DIGEST_ENV: version.files_digest(model_version),
    }


def _user_labels(predictor: str, template: PredictorTemplate) -> Mapping[str, str]:
    """Return the labels of the predictor's template; a label of Slipway is `TemplateInvalid`."""
    for name in template.metadata.labels:
        if name.startswith(f"{kinds.GROUP}/"):
            raise errors.Permanent(
                "TemplateInvalid",
                f"spec.predictors[name={predictor!r}].template.metadata.labels: {name!r} is Slipway's own",
            )
    return template.metadata.labels


def _refuse_variables(predictor: Predictor) -> None:
    """Refuse a variable of the predictor's container that says which model it loads."""
    for variable in _user_container(predictor).get("env") or []:
        if variable.get("name") in _PROTECTED_VARIABLES:
            path = f"spec.predictors[name={predictor.name!r}].template.containers[name={CONTAINER!r}].env"
            raise errors.Permanent(
                "TemplateInvalid", f"{path}: {variable['name']!r} is Slipway's own: it names the served model"
            )


def _refuse_overrides(predictor: str, template: PredictorTemplate, share: RenderedShare) -> None:
    for container in template.containers:
        if container["name"] == CONTAINER:
            path = f"spec.predictors[name={predictor!r}].template.containers[name={CONTAINER!r}]"
            gpu_pod.refuse_override(share, container, path)


def _pod_fields(template: PredictorTemplate, pull_secret: str) -> Object:
    """Return the fields of the Pod's spec that the predictor's template sets, by their names in JSON.

    `pull_secret`, unless it is empty, is added to the template's pull Secrets.
    """
    fields = template.model_dump(mode="json", by_alias=True, exclude={"metadata", "containers"})
    secret = {"name": pull_secret}
    listed = fields["imagePullSecrets"] or []
    if pull_secret and secret not in listed:
        fields["imagePullSecrets"] = [*listed, secret]
    return {name: value for name, value in fields.items() if value}


def _served_port(framework: str, containers: Sequence[Object]) -> ServedPort:
    """Return the port with a name of HTTP/2 in a custom container, or else the runtimes' port."""
    if framework != "custom":
        return ServedPort(names.RUNTIME_PORT)
    ports = (
        port
        for container in containers
        if container["name"] == CONTAINER
        for port in container.get("ports") or []
    )
    for port in ports:
        if port.get("name") in names.H2C_PORT_NAMES:
            return ServedPort(port["containerPort"], h2c=True)
    return ServedPort(names.RUNTIME_PORT)


def _probe_paths(
    inference: str, framework: str, container: Object, port: ServedPort, engine: Engine | None
) -> tuple[str, ...]:
    if port.h2c:
        return (_GRPC_READY,)
    ready = container.get("readinessProbe", {}).get("httpGet", {}).get("path", _READY_PATH)
    return (ready, f"/v2/models/{inference}/ready") if is_runtime(framework, engine) else (ready,)


def _container(server: Object, env: Mapping[str, str], predictor: Predictor, *, port: ServedPort) -> Object:
    """Return the predictor's container before its template is merged over it.

    Args:
        server: the fields that depend on the model server; `env` maps names to values.
        env: further variables; those of the server have precedence.
        predictor: the arm.
        port: the port of the model server.
    """
    container: Object = {
        "name": CONTAINER,
        # The predictor's template has the port of HTTP/2.
        "ports": [] if port.h2c else [{"name": "http", "containerPort": port.number, "protocol": "TCP"}],
        "volumeMounts": [model_volume.mount()],
        "readinessProbe": _probe(_readiness(port), periodSeconds=2, failureThreshold=2),
        **server,
    }
    variables = {**env, **server.get("env", {})}
    container["env"] = [{"name": key, "value": value} for key, value in variables.items()]
    limits = predictor.resources.model_dump(exclude_none=True, exclude={"gpu"})
    if limits:
        container["resources"] = {"requests": limits, "limits": dict(limits)}
    return container


def is_runtime(framework: str, engine: Engine | None) -> bool:
    """Whether the framework is a runtime: a model server that Slipway ships."""
    return framework != "custom" and engine is None


def _runtime(framework: str, predictor: Predictor, port: ServedPort, images: RuntimeImageSettings) -> Object:
    """Return the fields of a runtime's container; of a custom container, only its variables."""
    variables = {"env": _batching(predictor.batching, framework)}
    if framework == "custom":
        return variables
    # Another image, which the predictor's template names, may need root.
    is_ours = "image" not in _user_container(predictor)
    return {
        **variables,
        **_TERMINATION,
        **(_security_context(pod_defaults.RESTRICTED, predictor) if is_ours else {}),
        "image": f"{images.prefix}/{framework}{images.tag and f':{images.tag}'}",
        **({"imagePullPolicy": images.pull_policy} if images.pull_policy else {}),
        # Loading a model may take minutes; until then neither of the other probes counts.
        "startupProbe": _probe(_readiness(port), periodSeconds=1, failureThreshold=300),
        # On one machine a replica that hangs is replaced within 15 s: four failures and the grace take 11 s
        # at most, and the third restart in ten minutes waits for 2 s, the fourth for 4 s.
        "livenessProbe": _probe(
            _get("/v2/health/live"), periodSeconds=2, failureThreshold=4, terminationGracePeriodSeconds=1
        ),
    }


def _engine(engine: Engine, predictor: Predictor) -> Object:
    """Return the fields of an engine's container, as its manifest gives them."""
    values = _field_values(predictor)
    arguments = [f"{flag}={values[field]}" for field, flag in engine.fields.items() if field in values]
    readiness = _get(engine.readiness, engine.port)
    server: Object = {
        **_TERMINATION,
        **_security_context(engine.security_context, predictor),
        "image": engine.image,
        "args": [*engine.args, *arguments],
        "env": engine.env,
        "readinessProbe": _probe(readiness, periodSeconds=2, failureThreshold=2),
        "startupProbe": _probe(readiness, periodSeconds=1, failureThreshold=engine.start_seconds),
        # Engines answer late while they read long prompts.
        "livenessProbe": _probe(_get(engine.liveness, engine.port), periodSeconds=5, failureThreshold=6),
    }
    return {**server, "command": engine.command} if engine.command else server


def _security_context(defaults: Mapping[str, Any], predictor: Predictor) -> Object:
    """Return the field `securityContext` of the container with its defaults; empty without any."""
    pod = predictor.template.security_context if predictor.template is not None else {}
    own = _user_container(predictor).get("securityContext") or {}
    context = pod_defaults.security_context(defaults, pod, own)
    return {"securityContext": context} if context else {}


def _user_container(predictor: Predictor) -> Object:
    """Return the container `predictor` of the predictor's template; empty if it has none."""
    containers = predictor.template.containers if predictor.template is not None else []
    return next((container for container in containers if container["name"] == CONTAINER), {})


def _field_values(predictor: Predictor) -> dict[str, str]:
    """Return the values of the fields in `engine.FIELDS` that a predictor sets."""
    values: dict[str, str | int | None] = {
        "resources.cpu": predictor.resources.cpu,
        "resources.memory": predictor.resources.memory,
    }
    if predictor.batching is not None:
        values["batching.batchSize"] = predictor.batching.batch_size
    if (gpu := predictor.resources.gpu) is not None:
        values |= {"resources.gpu.memory": gpu.memory, "resources.gpu.cores": gpu.cores}
    return {field: str(value) for field, value in values.items() if value is not None}


def _ports(framework: str, port: ServedPort, engine: Engine | None) -> dict[str, str]:
    """Return the annotations of a Pod's ports: how requests arrive, and where an engine has its metrics."""
    if is_runtime(framework, engine):
        # Runtimes take a passed Unix socket.
        return {names.SOCKET_PORT_ANNOTATION: str(names.RUNTIME_PORT)}
    annotations = {}
    if engine is None or not engine.calls_itself:
        annotations[names.GATEWAY_PORT_ANNOTATION] = str(port.number)
    if engine is not None and engine.metrics_port is not None:
        annotations["prometheus.io/port"] = str(engine.metrics_port)
    return annotations


def _batching(batching: BatchingSpec | None, framework: str) -> dict[str, str]:
    """Return the variables of batching; none without batching, so that older revisions keep their hash.

    For `transformers` a size of 1 differs from none, with which it generates several sequences together.
    """
    if batching is None or (batching.batch_size == 1 and framework != "transformers"):
        return {}
    return {names.BATCH_SIZE_ENV: str(batching.batch_size), names.BATCH_TIMEOUT_ENV: batching.timeout}


def _readiness(port: ServedPort) -> Object:
    """Return the action of the readiness probe.

    For gRPC it only connects: which health method a server has, only the predictor's template can tell.
    """
    return {"tcpSocket": {"port": port.number}} if port.h2c else _get(_READY_PATH)


def _get(path: str, port: int = names.RUNTIME_PORT) -> Object:
    return {"httpGet": {"path": path, "port": port}}


def _probe(action: Object, **numbers: int) -> Object:
    return {**action, "timeoutSeconds": 2, **numbers}


def _merge_containers(
    base: list[Object], user_containers: list[Object], *, adds_arguments: bool
) -> list[Object]:
    """Merge the containers of the predictor's template over those of the base, by name.

    With `adds_arguments`, arguments of the template follow those of the base, unless it sets the command.
    """
    result = {container["name"]: container for container in base}
    for container in user_containers:
        before = result.get(container["name"], {})
        after = _overlay(before, container)
        if adds_arguments and before and "command" not in container:
            # A null in a template is an absent list.
            after["args"] = [*(before.get("args") or []), *(container.get("args") or [])]
        result[container["name"]] = after
    return list(result.values())


_KEYS: Mapping[str, str] = {"env": "name", "volumeMounts": "mountPath", "ports": "containerPort"}
"""Merge keys of a container's lists, as in strategic merge patches of core/v1."""
_MAPS = frozenset({"resources", "requests", "limits", "securityContext", "capabilities"})
"""Fields that are merged key by key."""


def _overlay(base: Object, patch: Object) -> Object:
    """Merge as a strategic merge patch does: maps by key, keyed lists by their key; the rest is replaced."""
    result = dict(base)
    for field, value in patch.items():
        before = result.get(field)
        if field in _KEYS and isinstance(before, list):
            result[field] = _overlay_items(before, value, _KEYS[field])
        elif field in _MAPS and isinstance(before, dict) and isinstance(value, dict):
            result[field] = _overlay(before, value)
        else:
            result[field] = value
    return result


def _overlay_items(base: list[Object], patch: list[Object], key: str) -> list[Object]:
    """Merge a keyed list: an item of the patch is merged over the item of the base with the same `key`."""
    by_key = {item.get(key): item for item in base}
    merged = {item.get(key): {**by_key.get(item.get(key), {}), **item} for item in patch}
    return list((by_key | merged).values())
