"""The `containerID` of a Pod's status, one run of a container: the API finds the run's log by it. Pure."""


def container_id(uid: str, container: str, index: int) -> str:
    """Return the identity of a run; runs of a container are counted from 0."""
    return f"slipway://{uid}/{container}/{index}"


def run_index(text: str) -> int | None:
    """Return the number of the run; None if `text` is not a containerID of this node."""
    last = text.rpartition("/")[2]
    return int(last) if text.startswith("slipway://") and last.isdecimal() else None
