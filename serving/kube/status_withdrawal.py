"""Removes the fields of one field manager from statuses: as its process ends, or once it is gone."""

import asyncio
import logging
from collections.abc import Iterable

from serving import errors
from serving.kube.connection.client import Kube
from serving.kube.informer import Key
from serving.resources.kinds import Kind

log = logging.getLogger(__name__)

WITHDRAWAL_SECONDS = 5.0
"""Longest duration of `withdraw`: the controllers remove the remaining entries later."""
_WRITERS = 8
"""Concurrent requests of `withdraw`."""


async def withdraw(kube: Kube, kind: Kind, keys: Iterable[Key], manager: str) -> None:
    """Remove the manager's part of these objects' statuses, in this order, if the API answers in time."""
    remaining = iter(keys)  # shared: each task takes the next key
    try:
        async with asyncio.timeout(WITHDRAWAL_SECONDS), asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(withdraw_each(kube, kind, remaining, manager))
    except* (errors.Unavailable, TimeoutError) as failed:
        problem = str(failed.exceptions[0]) or "no answer"
        log.info("statuses of %s keep the fields of %s: %s", kind.plural, manager, problem)


async def withdraw_each(kube: Kube, kind: Kind, keys: Iterable[Key], manager: str) -> bool:
    """Remove the manager's part of these objects' statuses; False if one refuses the write.

    Raises:
        errors.Unavailable: the API does not answer; the rest is unchanged.
    """
    is_clean = True
    for namespace, name in keys:
        try:
            await kube.withdraw_status(kind, namespace, name, manager=manager)
        except errors.NotFound:
            continue  # deleted meanwhile
        except errors.ApiError as error:  # a policy of one namespace must not stop the others
            log.info("%s %s/%s keeps the fields of %s: %s", kind.kind, namespace, name, manager, error)
            is_clean = False
    return is_clean
