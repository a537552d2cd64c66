"""Which finished Pods have had their time: a machine that runs bare Pods must not fill up with their logs."""

from collections.abc import Iterable

from serving.embedded.workloads import pods
from serving.objects import Object


def surplus(found: Iterable[Object], kept: int) -> list[Object]:
    """Return the finished Pods beyond the newest `kept`, oldest first; those with an owner are its to remove."""
    facts = [(pods.read(pod), pod) for pod in found if not pod["metadata"].get("ownerReferences")]
    over = [(fact, pod) for fact, pod in facts if fact.finished and not fact.terminating]
    over.sort(key=lambda entry: (entry[0].finished_at or entry[0].created, entry[0].name))
    return [pod for _, pod in over[: max(len(over) - kept, 0)]]
