"""Whether an API serves a kind that only clusters have. A component asks at its start, and not again."""

import asyncio
import logging

import orjson

from serving import errors
from serving.kube.client import CONFIG_SECONDS, Kube
from serving.objects import Object
from serving.resources.kinds import Kind

log = logging.getLogger(__name__)


async def serves(kube: Kube, kind: Kind) -> bool:
    """Return whether the API serves the kind, as soon as the API answers."""
    is_logged = False
    while True:
        try:
            listed: Object = orjson.loads(await kube.raw(kind.prefix))
        except errors.NotFound:
            return False
        except (errors.ApiError, errors.Unavailable) as error:
            if not is_logged:
                log.info("waiting for the API to list its kinds: %s", error)
                is_logged = True
            await asyncio.sleep(CONFIG_SECONDS)
        else:
            return any(resource["name"] == kind.plural for resource in listed["resources"])
