"""The templates of a job's Pods: once no Pod is left, they name the volume of the output.

Other projects define these objects, so that any part of them may have any shape.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from serving.objects import Object


def templates(job: Mapping[str, Any], paths: Iterable[str]) -> list[Object]:
    """Return the templates as Pods that have only a spec, in the order of their paths.

    Args:
        job: a job of any kind.
        paths: fields of the job with templates, such as `spec.replicatedJobs.template.spec.template`. A list
            on a path stands for each of its items.
    """
    specs = (spec for path in paths for spec in _values_at(job, [*path.split("."), "spec"]))
    return [{"spec": spec} for spec in specs if _is_pod_spec(spec)]


def trimmed(job: Mapping[str, Any], paths: Iterable[str]) -> Object:
    """Return the parts of a job that `templates` reads."""
    tree: Object = {}  # the keys of all paths, nested; a leaf is empty
    for path in paths:
        node = tree
        for key in [*path.split("."), "spec"]:
            node = node.setdefault(key, {})
    kept = _trimmed(job, tree) if tree else {}
    return kept if isinstance(kept, dict) else {}


def _values_at(value: Any, keys: list[str]) -> Iterator[Any]:
    """Yield the values at a path of keys, in each item of a list on the path."""
    if not keys:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _values_at(item, keys)
    elif isinstance(value, dict) and keys[0] in value:
        yield from _values_at(value[keys[0]], keys[1:])


def _trimmed(value: Any, tree: Mapping[str, Any]) -> Any:
    """Return a value without the parts that are not in the tree of keys; a leaf is kept whole."""
    if not tree:
        return value
    if isinstance(value, list):
        return [_trimmed(item, tree) for item in value]
    if isinstance(value, dict):
        return {key: _trimmed(value[key], branch) for key, branch in tree.items() if key in value}
    return None


def _is_pod_spec(spec: Any) -> bool:
    """Whether the fields of a Pod's spec that captures need have the shapes that Kubernetes gives them."""
    if not isinstance(spec, dict) or not _are_objects(spec.get("containers")):
        return False
    contexts = [spec.get("securityContext")]
    for container in spec["containers"]:
        contexts.append(container.get("securityContext"))
        variables, mounts = container.get("env") or [], container.get("volumeMounts") or []
        if not (_are_objects(variables, "name") and _are_objects(mounts, "name", "mountPath")):
            return False
        if not all(isinstance(item.get("value"), str | None) for item in variables):
            return False
    return _are_objects(spec.get("volumes") or [], "name") and all(
        isinstance(context, dict | None) for context in contexts
    )


def _are_objects(items: Any, *text_fields: str) -> bool:
    """Whether `items` is a list of objects, each with text in each of these fields."""
    return isinstance(items, list) and all(
        isinstance(item, dict) and all(isinstance(item.get(field), str) for field in text_fields)
        for item in items
    )
