"""`slipway describe`: objects with their conditions, replicas, lineage and Events."""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serving import clock, errors
from serving.cli.completion import candidates
from serving.cli.completion.values import Completes
from serving.cli.model import contents
from serving.cli.objects import lineage, owned_pods, pod_summary, sections
from serving.cli.objects.sections import titled
from serving.cli.options import with_target
from serving.cli.output import tables
from serving.cli.session import with_kube
from serving.cli.target import Target, named
from serving.cli.tune import summary
from serving.objects import Object
from serving.resources import kinds, names
from serving.resources.kinds import Kind

if TYPE_CHECKING:
    from serving.kube import Kube

BETWEEN_OBJECTS = "\n\n\n"


@with_target
def describe(
    target: Target,
    resources: Annotated[
        list[str],
        typer.Argument(help="KIND NAME..., or KIND/NAME..."),
        Completes(candidates.kinds_and_names),
    ],
) -> None:
    """Show objects with their conditions, Events and lineage."""

    async def work(kube: "Kube") -> None:
        texts: list[str] = []
        for kind, name in named(resources):
            namespace = target.namespace if kind.namespaced else None
            if name:
                objects = [await kube.get(kind, namespace, name)]
            else:
                objects = (await kube.list(kind, namespace)).items
            if not objects:
                raise errors.UserError(f"there are no {kind.plural} in namespace {target.namespace}")
            texts += [await _text(kube, kind, obj) for obj in objects]
        print(BETWEEN_OBJECTS.join(texts))

    with_kube(target.kubeconfig, work)


async def _text(kube: "Kube", kind: Kind, obj: Object) -> str:
    return "\n\n".join([section async for section in _sections(kube, kind, obj)])


async def _sections(kube: "Kube", kind: Kind, obj: Object) -> AsyncIterator[str]:
    now, status = clock.now(), obj.get("status") or {}
    yield sections.head(kind, obj, now)
    if kind is kinds.INFERENCE:
        yield titled("Predictors", sections.predictors(obj))
        if routing := obj["spec"].get("routing"):
            yield titled("Routing", sections.document(routing))
    elif kind is kinds.POD:
        yield titled("Pod", pod_summary.of_pod(obj))
        yield titled("Containers", pod_summary.containers(obj))
    else:
        for part in ("spec", "data"):
            if part in obj:
                yield titled(part.capitalize(), sections.document(_shown(kind, obj[part])))
        if kind.status:
            yield titled("Status", sections.status(status))
    if conditions := status.get("conditions"):
        yield titled("Conditions", sections.conditions(sections.without_start(conditions), now))
    if kind is kinds.POD and (start := sections.start(obj)):
        yield titled("Start", start)
    if kind is kinds.PROFILING_EXPERIMENT:
        of_experiment = f"{names.EXPERIMENT_LABEL}={obj['metadata']['name']}"
        trials = await kube.list(kinds.TRIAL, obj["metadata"]["namespace"], labels=of_experiment)
        yield titled("Trials", summary.trials_table(trials.items))
    if kind is kinds.JOB:
        yield titled("Pods", sections.pods(await owned_pods.of(kube, obj), now))
    async for section in _lineage(kube, kind, obj):
        yield section
    yield titled("Events", sections.events(await _events(kube, obj["metadata"]), now))


def _shown(kind: Kind, part: Mapping[str, Any]) -> Any:
    """Return a part of an object; of a Secret, only how long its values are, as kubectl does."""
    return (
        {key: f"{len(value)} characters of base64" for key, value in part.items()}
        if kind is kinds.SECRET
        else part
    )


async def _lineage(kube: "Kube", kind: Kind, obj: Object) -> AsyncIterator[str]:
    """Yield the sections of the lineage, after those of an Inference's replicas or an image's contents."""
    meta = obj["metadata"]
    if kind is kinds.INFERENCE:
        of_inference = f"{names.INFERENCE_LABEL}={meta['name']}"
        pods = await kube.list(kinds.POD, meta["namespace"], labels=of_inference)
        yield titled("Replicas", sections.replicas(pods.items, clock.now()))
        autoscalers = await kube.list(kinds.AUTOSCALER, meta["namespace"], labels=of_inference)
        if wakes := sections.wakes(autoscalers.items, clock.now()):
            yield titled("Last start from zero, ms", wakes)
        for predictor in obj["spec"]["predictors"]:
            steps = await lineage.of_version(kube, meta["namespace"], predictor["modelVersion"])
            yield titled(f"Lineage of {predictor['name']}", tables.text(lineage.LineageStep._fields, steps))
    elif kind is kinds.POD:
        yield titled("Lineage", tables.text(lineage.LineageStep._fields, await lineage.of_pod(kube, obj)))
    elif kind is kinds.MODEL_VERSION:
        if lines := contents.lines(obj.get("status") or {}):
            yield titled("Contents", "\n".join(lines))
        steps = await lineage.of_version(kube, meta["namespace"], meta["name"])
        yield titled("Lineage", tables.text(lineage.LineageStep._fields, steps))


async def _events(kube: "Kube", meta: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the Events of exactly this object (by uid)."""
    namespace = meta.get("namespace") or "default"  # has the Events of objects without one
    of_object = f"involvedObject.uid={meta['uid']}"
    return (await kube.list(kinds.EVENT_V1, namespace, fields=of_object)).items
