"""Renders settings into the predictor, and into the Pod that a trial measures. Pure.

A tuned parameter replaces each value that the predictor already sets for it: in its own fields, and in its
container's resources, environment, command and arguments.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from serving.errors import Permanent, Temporary
from serving.objects import Object
from serving.planning.gpu import hami, mps
from serving.planning.gpu import mechanism as mechanisms
from serving.planning.gpu.share import Mechanism
from serving.planning.inference import revision
from serving.planning.models.version import blocked
from serving.planning.models.volume import VolumeSource
from serving.resources import engine, names
from serving.resources.engine import Engine
from serving.resources.inference import InferenceSpec, Predictor, PredictorTemplate, Resources
from serving.resources.tuning.experiment import Prices, Setting, TuningTarget
from serving.settings import DEFAULTS, RuntimeImageSettings
from tuner.specs import prices as costing
from tuner.specs.space import Space, flag

_BATCHING_ENV = frozenset({names.BATCH_SIZE_ENV, names.BATCH_TIMEOUT_ENV})
_GPU_ENV = frozenset({mps.THREADS, mps.MEMORY, hami.POLICY})
_GPU_LIMITS = ("nvidia.com/", "aliyun.com/gpu")
"""Prefixes of the resources of GPU mechanisms."""
_SHELLS = re.compile(r"(.*/)?(ba|da|z|k|a)?sh")
_NUMBER = re.compile(r"-[0-9.]")
"""Begins a negative number, which is the value of an argument and not another argument."""
_BATCH_OF_REQUEST = 1


@dataclass(frozen=True)
class TunedTarget:
    """The predictor that an experiment tunes: the target of the patch of its settings."""

    name: str
    """The model's name for clients."""
    framework: str
    predictor: Predictor
    """Today's predictor; its `model_version` names the ModelVersion to render."""
    engine: Engine | None = None
    """The engine, if the framework is one."""
    images: RuntimeImageSettings = DEFAULTS.runtime_images
    """The images of Slipway's own model servers."""
    volume: VolumeSource = "image"
    """The source of the model's files."""
    mechanism: Mechanism = "mps"
    """The mechanism of a share of a GPU that is `auto`: one for all trials, so that they can be compared."""


@dataclass(frozen=True)
class Rendering:
    """The rendered form of a spec for its Trial."""

    template: Object
    """The Pod template without labels: the service's labels would attract its traffic."""
    cost_per_hour: float
    batch: int
    """Items in one request: one, as runtimes batch requests themselves."""
    model_name: str
    model_version: str
    model_digest: str


def tuned_target(
    target: TuningTarget,
    inference: Mapping[str, Any] | None,
    engines: Mapping[str, Engine],
    images: RuntimeImageSettings = DEFAULTS.runtime_images,
) -> TunedTarget:
    """Return the tuned predictor of a target.

    Args:
        target: of the experiment.
        inference: the Inference that it names; None if it names a ModelVersion.
        engines: those that are known, by name.
        images: those of Slipway's model servers.

    Raises:
        Permanent: TargetInvalid, with the field.
    """
    if inference is None:
        if target.model_version is None or target.framework is None:
            raise Permanent(
                "TargetInvalid", "spec.target: needs an inference, or a modelVersion with its framework"
            )
        predictor = Predictor(
            name="trial",
            model_version=target.model_version,
            resources=target.resources or Resources(),
            template=target.template,
        )
        return _tuned_target(target.model_version, target.framework, predictor, engines, images)
    name = inference["metadata"]["name"]
    spec = InferenceSpec.model_validate(inference["spec"])
    choices = ", ".join(predictor.name for predictor in spec.predictors)
    if target.predictor is None and len(spec.predictors) > 1:
        raise Permanent("TargetInvalid", f"spec.target.predictor: is missing; {name} has {choices}")
    chosen = target.predictor or spec.predictors[0].name
    for predictor in spec.predictors:
        if predictor.name == chosen:
            return _tuned_target(name, spec.framework, predictor, engines, images)
    raise Permanent("TargetInvalid", f"spec.target.predictor: {name} has no {chosen}; it has {choices}")


def _tuned_target(
    name: str,
    framework: str,
    predictor: Predictor,
    engines: Mapping[str, Engine],
    images: RuntimeImageSettings,
) -> TunedTarget:
    if problem := engine.unknown(framework, engines):
        raise Permanent("TargetInvalid", problem)
    return TunedTarget(name, framework, predictor, engines.get(framework), images)


def pod(
    tuned_target: TunedTarget, model_version: Mapping[str, Any], settings: Sequence[Setting], prices: Prices
) -> Rendering:
    """Return the Pod that measures a spec; without settings, today's.

    Raises:
        Permanent: SettingsInvalid, with the parameter that cannot be applied; GpuShareInvalid, the share does
            not exist; TargetInvalid, a trial cannot run the predictor.
        Temporary: ModelNotReady, the ModelVersion has no image yet; ModelVersionBlocked, by a policy.
    """
    template, has = _render(tuned_target, model_version, settings)
    return Rendering(
        template=template,
        cost_per_hour=float(costing.cost_per_hour(has, prices)),
        batch=_BATCH_OF_REQUEST,
        model_name=tuned_target.name,
        model_version=model_version["metadata"]["name"],
        model_digest=model_version["status"]["digest"],
    )


def costs(
    tuned_target: TunedTarget, model_version: Mapping[str, Any], space: Space, prices: Prices
) -> NDArray[np.float64]:
    """Return the hourly cost of each spec's replica: `pod(...).cost_per_hour` for all specs at once.

    Raises:
        Permanent, Temporary: as `pod`.
    """
    settings = space.settings(0)
    _, first = _render(tuned_target, model_version, settings)
    return costing.costs(first, _deployed(tuned_target, settings).resources, space, prices)


def _render(
    tuned_target: TunedTarget, model_version: Mapping[str, Any], settings: Sequence[Setting]
) -> tuple[Object, costing.Amounts]:
    if message := blocked(model_version):
        raise Temporary("ModelVersionBlocked", message)
    status = model_version.get("status") or {}
    if not status.get("image") or not status.get("digest"):
        raise Temporary("ModelNotReady", f"ModelVersion {model_version['metadata']['name']} has no image yet")
    predictor = _deployed(tuned_target, settings)
    rendered = revision.render(
        tuned_target.name,
        tuned_target.framework,
        predictor,
        model_version,
        tuned_target.engine,
        images=tuned_target.images,
        volume=tuned_target.volume,
    )
    if rendered.claim is not None:
        raise Permanent(
            "TargetInvalid",
            "resources.gpu.mechanism: dra; a trial makes no ResourceClaimTemplate: tune with another"
            " mechanism, such as mps",
        )
    if rendered.port.h2c:
        raise Permanent(
            "TargetInvalid",
            f"template.containers[name=predictor].ports: {rendered.port.number} speaks HTTP/2; trials send"
            " HTTP/1.1",
        )
    # A trial measures a replica without a zygote. The load generator connects to the Pod's address, so the
    # replica must serve there, and not on the socket or port that is for the gateway alone.
    trial_annotations = {
        names.ZYGOTE_ANNOTATION: "disabled",
        names.SOCKET_PORT_ANNOTATION: "",
        names.GATEWAY_PORT_ANNOTATION: "",
    }
    annotations = {**rendered.template["metadata"]["annotations"], **trial_annotations}
    template = {"metadata": {"annotations": annotations}, "spec": rendered.template["spec"]}
    return template, costing.amounts(template["spec"]["containers"], predictor.resources)


def _deployed(tuned_target: TunedTarget, settings: Sequence[Setting]) -> Predictor:
    """Return the predictor with these settings, with the mechanism in place of `auto`."""
    predictor = tuned(tuned_target, settings)
    if mechanisms.is_open(predictor.resources.model_dump()):
        return mechanisms.with_mechanism(predictor, tuned_target.mechanism)
    return predictor


def tuned(tuned_target: TunedTarget, settings: Sequence[Setting]) -> Predictor:
    """Return the predictor with these settings, as an Inference has it.

    Raises:
        Permanent: SettingsInvalid, with the parameter that cannot be applied.
    """
    by_category: dict[str, dict[str, str]] = {"resource": {}, "batching": {}, "env": {}, "args": {}}
    for setting in settings:
        by_category[setting.category][setting.name] = setting.value
    if not settings:
        return tuned_target.predictor
    value = tuned_target.predictor.model_dump(by_alias=True, exclude_none=True)
    _put_resources(value, by_category["resource"])
    if by_category["batching"]:
        if tuned_target.framework == "custom":
            raise Permanent(
                "SettingsInvalid",
                "batching: framework custom does not batch; tune an argument of the server",
            )
        value["batching"] = {**value.get("batching", {}), **by_category["batching"]}
    container = _container(tuned_target.predictor.template or PredictorTemplate(), by_category)
    if tuned_target.engine is not None:
        _replace_fields(container, by_category, tuned_target.engine)
    _put_env(container, by_category["env"])
    _put_arguments(container, by_category["args"], tuned_target)
    if len(container) > 1:  # more than its name
        value["template"] = _with_container(value.get("template", {}), container)
    try:
        return Predictor.model_validate(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise Permanent("SettingsInvalid", f"predictor.{where}: {error.errors()[0]['msg']}") from error


def _put_resources(predictor: Object, settings: Mapping[str, str]) -> None:
    resources = dict(predictor.get("resources", {}))
    for name, value in settings.items():
        device, _, part = name.partition(".")  # `gpu.memory` is the field `memory` of `gpu`
        resources[device] = {**resources.get(device, {}), part: value} if part else value
    predictor["resources"] = resources


def _container(template: PredictorTemplate, by_category: Mapping[str, Mapping[str, str]]) -> Object:
    """Return the predictor's container of the template, without the values that the settings replace."""
    own = next(
        (c for c in template.containers if c["name"] == revision.CONTAINER), {"name": revision.CONTAINER}
    )
    container = dict(own)
    is_gpu_tuned = any(name.startswith("gpu.") for name in by_category["resource"])
    if "resources" in container:
        replaced = {name for name in by_category["resource"] if "." not in name}
        replaced_prefixes = _GPU_LIMITS if is_gpu_tuned else ()
        resources = dict(container["resources"])
        for kind in resources.keys() & {"requests", "limits"}:
            resources[kind] = {
                name: amount
                for name, amount in (resources[kind] or {}).items()
                if name not in replaced and not name.startswith(replaced_prefixes)
            }
        container["resources"] = resources
    if "env" in container:
        replaced_env: set[str] = set()
        if by_category["batching"]:
            replaced_env |= _BATCHING_ENV
        if is_gpu_tuned:
            replaced_env |= _GPU_ENV
        container["env"] = [entry for entry in container["env"] if entry["name"] not in replaced_env]
    return container


def _replace_fields(container: Object, by_category: Mapping[str, Mapping[str, str]], engine: Engine) -> None:
    """Replace the arguments of the container that the engine takes tuned fields as.

    The engine's arguments, with the tuned fields, precede those of the template, unless it has a command.
    """
    fields = {f"resources.{name}": value for name, value in by_category["resource"].items()}
    fields |= {f"batching.{name}": value for name, value in by_category["batching"].items()}
    for field, option in engine.fields.items():
        if field not in fields:
            continue
        word = f"{option}={fields[field]}" if "command" in container else None
        for part in ("command", "args"):
            words, has_occurred = _replaced([str(each) for each in container.get(part) or []], option, word)
            if has_occurred:
                container[part], word = words, None


def _put_env(container: Object, settings: Mapping[str, str]) -> None:
    if not settings:
        return
    entries: dict[str, Object] = {entry["name"]: entry for entry in container.get("env", [])}
    entries |= {name: {"name": name, "value": value} for name, value in settings.items()}
    container["env"] = list(entries.values())


def _put_arguments(container: Object, settings: Mapping[str, str], tuned_target: TunedTarget) -> None:
    if not settings:
        return
    command = [str(word) for word in container.get("command") or []]
    is_runtime = tuned_target.framework != "custom" and tuned_target.engine is None
    if is_runtime and not command and "image" not in container:
        raise Permanent(
            "SettingsInvalid",
            f"args: the runtime of framework {tuned_target.framework} has no arguments; tune env instead",
        )
    if command and _SHELLS.fullmatch(command[0]) and "-c" in command:
        raise Permanent(
            "SettingsInvalid", "args: a shell script does not receive arguments; tune env instead"
        )
    arguments = [str(word) for word in container.get("args") or []]
    for name, value in settings.items():
        word = f"{flag(name)}={value}"
        command, in_command = _replaced(command, flag(name), word)
        arguments, in_arguments = _replaced(arguments, flag(name), None if in_command else word)
        if not in_command and not in_arguments:
            # The words after `--` are no flags.
            end = arguments.index("--") if "--" in arguments else len(arguments)
            arguments.insert(end, word)
    container["args"] = arguments
    if command:
        container["command"] = command


def _replaced(words: Sequence[str], name: str, word: str | None) -> tuple[list[str], bool]:
    """Return the words with an argument replaced, and whether the argument occurred.

    Args:
        words: of a command line; the argument is `NAME VALUE` or `NAME=VALUE`.
        name: of the argument, as a flag.
        word: takes the place of the first occurrence; None only removes. All other occurrences are removed.
    """
    result: list[str] = []
    has_occurred = may_be_value = False
    for item in words:
        if may_be_value and (not item.startswith("-") or _NUMBER.match(item)):
            may_be_value = False
            continue
        may_be_value = item == name
        if item == name or item.startswith(f"{name}="):
            if word is not None and not has_occurred:
                result.append(word)
            has_occurred = True
        else:
            result.append(item)
    return result, has_occurred


def _with_container(template: Object, container: Object) -> Object:
    others = [c for c in template.get("containers", []) if c["name"] != revision.CONTAINER]
    return {**template, "containers": [container, *others]}
