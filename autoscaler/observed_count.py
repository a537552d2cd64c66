"""The desired count of a target: the watched one, or a newer one that the controller wrote.

A tick must not decide on a count older than its own last write, nor take that for another writer's.
"""

from autoscaler import other_writers
from autoscaler.state.target_state import TargetState
from serving.objects import Object


def desired_count(state: TargetState, target: Object, manager: str, monotonic: float) -> int:
    """Return the desired count, and record in `state` a change by another writer.

    Args:
        state: of the Autoscaler, updated here. The count of `last_write` is returned until the watch shows
            that write; `known` is the count that was last written or observed, and `intended` the count of a
            write without a response.
        target: the object with the scale subresource, as the watch shows it.
        manager: the field manager of this controller.
        monotonic: seconds of the monotonic clock.
    """
    count = int((target.get("spec") or {}).get("replicas", 1))
    if state.last_write is not None:
        # The watch has not shown the last write: resourceVersions are numbers (`Informer.has_seen`).
        if int(target["metadata"]["resourceVersion"]) < state.last_write.resource_version:
            return state.last_write.replicas
        state.last_write = None
    own_counts = (state.known_count, state.unconfirmed_count)
    if state.known_count is not None and count not in own_counts:
        if not other_writers.is_own_write(target, manager):
            other_writers.add_change(state.changes_by_others, monotonic)
        # A raise by another instance of this controller counts too: that instance may have observed more.
        if count > state.known_count:
            state.raised = state.raised.after_raise(count, monotonic)
    state.known_count, state.unconfirmed_count = count, None
    return count
