"""The desired count of a target: the watched one, or a newer one that the controller wrote.

A tick must not decide on a count older than its own last write, nor take that for another writer's.
`serving.kube.cache` cannot show this write: the answer of a scale subresource is not the Deployment.
"""

from autoscaler import other_writers
from autoscaler.state.target_state import TargetState
from serving.objects import Object


def desired_count(state: TargetState, target: Object, manager: str, monotonic: float) -> int:
    """Return the desired count. Record in `state` changes by other writers, and raises by other writers or by
    another instance of this controller.

    Args:
        state: of the Autoscaler, updated here. The count of `last_write` is returned until the watch shows
            that write; `known_count` was last written or observed; `unconfirmed_count` is that of a write
            without a response, which may have been stored. A raise in `raised` is not undone for a while.
            All of them begin anew with another target.
        target: the object with the scale subresource, as the watch shows it.
        manager: the field manager of this controller.
        monotonic: seconds of the monotonic clock.
    """
    uid = str(target["metadata"].get("uid", ""))
    if uid != state.target_uid:
        # The Deployment of a new revision has a count and a resourceVersion of its own.
        state.target_uid, state.last_write = uid, None
        state.known_count = state.unconfirmed_count = None
        state.raised, state.changes_by_others = other_writers.Raised(), []
    count = int((target.get("spec") or {}).get("replicas", 1))
    if state.last_write is not None:
        # A lower resourceVersion, compared as a number: the watch does not show the last write yet.
        if int(target["metadata"]["resourceVersion"]) < state.last_write.resource_version:
            return state.last_write.replicas
        state.last_write = None
    own_counts = (state.known_count, state.unconfirmed_count)
    if state.known_count is not None and count not in own_counts:
        if not other_writers.is_own_write(target, manager):
            other_writers.add_change(state.changes_by_others, monotonic)
        # Also by another instance of this controller, with its field manager: that instance may have observed
        # load that this one has not.
        if count > state.known_count:
            state.raised = state.raised.after_raise(count, monotonic)
    state.known_count, state.unconfirmed_count = count, None
    return count
