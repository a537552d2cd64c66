"""The desired count of a target: the watched one, or a newer one that the controller wrote."""

from autoscaler import other_writers
from autoscaler.state.target_state import TargetState
from serving.objects import Object


def take(state: TargetState, target: Object, manager: str, moment: float) -> int:
    """Return the desired count, and record in `state` a change by another writer.

    Args:
        state: of the Autoscaler; its last written count is returned until the watch has shown it.
        target: the object with the scale subresource.
        manager: the field manager of this controller.
        moment: monotonic seconds.
    """
    count = int((target.get("spec") or {}).get("replicas", 1))
    if state.wrote is not None:
        written, version = state.wrote
        if int(target["metadata"]["resourceVersion"]) < version:
            return written
        state.wrote = None
    mine = (state.known, state.intended)  # a write without a response may have been applied
    if state.known is not None and count not in mine:
        if not other_writers.wrote(target, manager):
            other_writers.add_change(state.changes_by_others, moment)
        if count > state.known:
            state.raised = state.raised.after_raise(count, moment)
    state.known, state.intended = count, None
    return count
