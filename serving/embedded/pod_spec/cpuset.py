"""The processor cores of a Pod's processes: its annotation, parsed and checked. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from serving.resources import names

FIELD = f"metadata.annotations[{names.CPUSET_ANNOTATION}]"
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")


def parse(text: str) -> frozenset[int]:
    """Parse a list of cores such as `0-2,5`, as in cpuset(7).

    Raises:
        ValueError: the text is not in this format, or a range runs backwards.
    """
    cores: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError("must be cores such as 0, 0-2 or 0-2,5")
        first = int(match.group(1))
        last = int(match.group(2) or first)
        if last < first:
            raise ValueError(f"range {part.strip()} runs backwards")
        cores |= set(range(first, last + 1))
    return frozenset(cores)


def requested(meta: Mapping[str, Any]) -> frozenset[int] | None:
    """Return the cores that the metadata of a Pod or a template requests; None without the annotation.

    Raises:
        ValueError: the annotation is not a list of cores.
    """
    text = (meta.get("annotations") or {}).get(names.CPUSET_ANNOTATION)
    return None if text is None else parse(text)


def refusal(meta: Mapping[str, Any], machine: Collection[int] | None) -> str | None:
    """Return why a Pod cannot have the cores that it requests, or None.

    Args:
        meta: the metadata of the Pod.
        machine: the cores of the machine; None where the node is not known.
    """
    try:
        cores = requested(meta)
    except ValueError as error:
        return str(error)
    if cores is None or machine is None or cores <= set(machine):
        return None
    missing, present = (", ".join(map(str, sorted(group))) for group in (cores - set(machine), machine))
    return f"this machine has no core {missing}; it has {present}"
