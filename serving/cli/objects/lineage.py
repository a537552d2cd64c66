"""The lineage of a Pod or ModelVersion: Pod, predictor, ModelVersion, digest, Job, files."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from serving import errors
from serving.resources import kinds, names

if TYPE_CHECKING:
    from serving.kube import Kube


_PLACES = {"path": "Path", "uri": "URI", "image": "Image"}
"""Fields of a lineage that locate files, with their titles here."""


class LineageStep(NamedTuple):
    """One step of a lineage, a row of its table: kind or place, name, and the proof of its identity."""

    kind: str
    name: str
    proof: str


async def of_pod(kube: "Kube", pod: Mapping[str, Any]) -> list[LineageStep]:
    """Return the lineage of a replica."""
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    steps = [LineageStep("Pod", meta["name"], f"uid {meta['uid']}")]
    if names.INFERENCE_LABEL not in labels:
        return steps
    steps.append(
        LineageStep(
            "Inference", labels[names.INFERENCE_LABEL], f"predictor {labels.get(names.PREDICTOR_LABEL, '')}"
        )
    )
    version = (meta.get("annotations") or {}).get(names.MODEL_VERSION_ANNOTATION) or _env(
        pod, names.MODEL_VERSION_ENV
    )
    if reference := _image_reference(pod):
        repository, _, digest = reference.partition("@")
        steps.append(LineageStep("Image mounted", repository, digest))
    if version:
        steps += await of_version(kube, meta["namespace"], version)
    return steps


async def of_version(kube: "Kube", namespace: str, name: str) -> list[LineageStep]:
    """Return the lineage of a ModelVersion."""
    try:
        version = await kube.get(kinds.MODEL_VERSION, namespace, name)
    except errors.NotFound:
        return [LineageStep("ModelVersion", name, "not found")]
    status = version.get("status") or {}
    steps = [
        LineageStep("ModelVersion", name, status.get("digest") or f"phase {status.get('phase', 'Pending')}")
    ]
    source = status.get("lineage") or {}
    if source.get("uid"):
        steps.append(await _job(kube, namespace, source))
    for field, title in _PLACES.items():
        if source.get(field):
            revision = source.get("sourceRevision") or "unknown"
            steps.append(LineageStep(title, source[field], f"revision {revision}"))
    steps += [
        LineageStep("File", file["path"], f"{file['digest']} ({file['size']} bytes)")
        for file in status.get("files") or []
    ]
    return steps


async def _job(kube: "Kube", namespace: str, source: Mapping[str, Any]) -> LineageStep:
    title, proof = source.get("kind") or kinds.JOB.kind, f"uid {source['uid']}"
    kind = await _kind(kube, source.get("apiVersion") or kinds.JOB.api_version, title)
    if kind is None:
        return LineageStep(title, source["name"], f"{proof} (the API serves no such kind any more)")
    try:
        job = await kube.get(kind, namespace, source["name"])
    except errors.NotFound:
        return LineageStep(title, source["name"], f"{proof} (deleted since)")
    if job["metadata"]["uid"] != source["uid"]:
        return LineageStep(title, source["name"], f"{proof} (another {title} has that name now)")
    return LineageStep(title, source["name"], proof)


async def _kind(kube: "Kube", api_version: str, name: str) -> kinds.Kind | None:
    from serving.kube.discovery import kind_of  # noqa: PLC0415 only where a lineage is shown: it imports aiohttp

    return kinds.of(api_version, name) or await kind_of(kube, api_version, name)


def _env(pod: Mapping[str, Any], name: str) -> str:
    for container in pod["spec"].get("containers") or []:
        for entry in container.get("env") or []:
            if entry.get("name") == name:
                return str(entry.get("value", ""))
    return ""


def _image_reference(pod: Mapping[str, Any]) -> str:
    """Return `REPOSITORY@DIGEST` of the Pod's image volume; empty without one."""
    for volume in pod["spec"].get("volumes") or []:
        if "image" in volume:
            return str(volume["image"].get("reference", ""))
    return ""
