"""Which kinds of other projects an API serves."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

import orjson

from serving import errors
from serving.kube.connection.client import CONFIG_SECONDS, Kube
from serving.objects import Object
from serving.resources.kinds import Kind, OptionalKind

log = logging.getLogger(__name__)


async def serves(kube: Kube, kind: Kind) -> bool:
    """Return whether the API has objects of the kind, as soon as the API answers: for components that ask at
    their start, and not again.

    A kind of which objects cannot be created, as on the embedded server, has none.
    """
    is_logged = False
    while True:
        try:
            return any(
                resource["name"] == kind.plural and "create" in resource["verbs"]
                for resource in await resources(kube, kind.prefix)
            )
        except (errors.ApiError, errors.Unavailable) as error:
            if not is_logged:
                log.info("waiting for the API to list its kinds: %s", error)
                is_logged = True
            await asyncio.sleep(CONFIG_SECONDS)


async def served(kube: Kube, optional: Iterable[OptionalKind]) -> Mapping[OptionalKind, Kind | None]:
    """Return the kinds that the API serves, each in the preferred one of its served versions, or None.

    A kind is left out if the API does not answer for its group, as while a server behind it is down. One
    request names all groups; only for those of the kinds are there more.
    """
    wanted, versions = list(optional), await _versions(kube)
    present = {k: [v for v in k.versions if v in versions.get(k.group, ())] for k in wanted}
    asked = sorted({(kind.group, version) for kind in wanted for version in present[kind]})
    plurals = {group_version: await _plurals(kube, *group_version) for group_version in asked}
    served_kinds: dict[OptionalKind, Kind | None] = {}
    for kind in wanted:
        answers = [(version, plurals[kind.group, version]) for version in present[kind]]
        if not any(names is None for _, names in answers):
            having = (version for version, names in answers if names and kind.plural in names)
            served_kinds[kind] = next((kind.at(version) for version in having), None)
    return served_kinds


async def _plurals(kube: Kube, group: str, version: str) -> set[str] | None:
    """Return the plurals of a group and version; None if the API does not answer for them."""
    try:
        return {resource["name"] for resource in await resources(kube, f"/apis/{group}/{version}")}
    except (errors.ApiError, errors.Unavailable) as error:
        log.info("the API does not list the kinds of %s/%s: %s", group, version, error)
        return None


async def kind_of(kube: Kube, api_version: str, name: str) -> Kind | None:
    """Return the kind that the API serves under this name, with its plural; None if there is none."""
    group, _, version = api_version.rpartition("/")
    prefix = f"/apis/{api_version}" if group else f"/api/{api_version}"
    for resource in await resources(kube, prefix):
        if resource["kind"] == name and "/" not in resource["name"]:
            return Kind(group, version, name, resource["name"], namespaced=resource["namespaced"])
    return None


async def resources(kube: Kube, prefix: str) -> list[Object]:
    """Return the resources of a group and version, such as `/apis/batch/v1`; none of an unknown group."""
    try:
        listed: list[Object] | None = orjson.loads(await kube.raw(prefix))["resources"]
    except errors.NotFound:
        return []
    return listed or []


async def _versions(kube: Kube) -> Mapping[str, set[str]]:
    """Return the served versions of each group."""
    try:
        groups = orjson.loads(await kube.raw("/apis"))["groups"]
    except errors.NotFound:
        return {}
    return {group["name"]: {served["version"] for served in group["versions"]} for group in groups or []}
