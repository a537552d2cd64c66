"""Asks the API which kinds it serves."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from serving import errors
from serving.kube.connection import answers
from serving.kube.connection.client import CONFIG_SECONDS, Kube
from serving.objects import Object
from serving.resources.kinds import Kind, OptionalKind

log = logging.getLogger(__name__)


async def serves(kube: Kube, kind: Kind) -> bool:
    """Wait until the API answers; return whether it can have objects of the kind.

    For components that ask only at their start. A kind whose objects cannot be created has none: the embedded
    API lists some kinds without the verb `create`.
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
    """Return each kind in the preferred one of its served versions; None if the API does not serve the kind.

    The result lacks a kind for whose group the API does not answer, as while an aggregated API server is
    down: whether it is served is unknown. One request lists all groups; there is one more for each group and
    version of these kinds that the API serves.
    """
    wanted = list(optional)
    group_versions = await _versions(kube)
    candidates = {
        kind: [version for version in kind.versions if version in group_versions.get(kind.group, ())]
        for kind in wanted
    }
    asked = sorted({(kind.group, version) for kind in wanted for version in candidates[kind]})
    plurals = {group_version: await _plurals(kube, *group_version) for group_version in asked}
    served_kinds: dict[OptionalKind, Kind | None] = {}
    for kind in wanted:
        names_by_version = {version: plurals[kind.group, version] for version in candidates[kind]}
        if None in names_by_version.values():
            continue
        versions = (version for version, names in names_by_version.items() if names and kind.plural in names)
        served_kinds[kind] = next((kind.at(version) for version in versions), None)
    return served_kinds


async def _plurals(kube: Kube, group: str, version: str) -> set[str] | None:
    """Return the plural names of the kinds in a group and version; None if the API does not answer."""
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
        document = answers.json_object(await kube.raw(prefix), prefix)
    except errors.NotFound:
        return []
    return answers.objects_in(document, "resources", prefix)


async def _versions(kube: Kube) -> Mapping[str, set[str]]:
    """Return the served versions of each group."""
    try:
        document = answers.json_object(await kube.raw("/apis"), "/apis")
    except errors.NotFound:
        return {}
    groups = answers.objects_in(document, "groups", "/apis")
    with answers.shape_checked("/apis"):
        return {group["name"]: {served["version"] for served in group["versions"]} for group in groups}
