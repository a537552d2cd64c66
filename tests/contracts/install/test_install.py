"""The installation on a cluster: its objects, its Pods' admission and the rights of its accounts.

The objects are applied under other names, beside an installation that the cluster may have, without replicas.
"""

import asyncio
import copy
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import orjson
import pytest

from serving import clock, errors, job_kinds
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.kinds import Kind
from tests.objects.contract_objects import create_dry
from tests.rig.control_plane import api_requests, discovery, installation, job_definitions
from tests.rig.control_plane.convergence import VERDICT_SECONDS
from tests.rig.control_plane.kubectl import KUBECTL, Kubectl

pytestmark = [
    pytest.mark.server_only("RBAC and admission are a cluster's"),
    pytest.mark.skipif(
        "SLIPWAY_CONTRACT_KUBECONFIG" not in os.environ, reason="RBAC and admission are a cluster's"
    ),
]

REVIEW = Kind("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
ACCOUNTS = sorted(api_requests.PACKAGES)
RIGHTS = Path(__file__).parents[3] / "docs" / "reference" / "rights.md"


def templates(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    for obj in objects:
        if obj["kind"] == "Deployment":
            yield obj["metadata"]["name"], copy.deepcopy(obj["spec"]["template"])


async def may(kube: Kube, user: str, groups: list[str], **attributes: str) -> bool:
    """Ask the API whether a user may send a request."""
    spec = {"user": user, "groups": groups, "resourceAttributes": attributes}
    answer = await kube.request("POST", REVIEW.path(), body={"spec": spec})
    return bool(answer["status"]["allowed"])


async def until(holds: Callable[[], Awaitable[bool]], description: str) -> None:
    """Ask again until a new binding, or an aggregated role, has reached the API server's caches."""
    deadline = clock.monotonic() + VERDICT_SECONDS
    while not await holds():
        assert clock.monotonic() < deadline, f"not within {VERDICT_SECONDS} s: {description}"
        await asyncio.sleep(0.05)


async def account_may(kube: Kube, installed_in: str, account: str, where: str, *right: str) -> bool:
    group, resource, verb = right
    name, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": name, "subresource": subresource, "verb": verb}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{installed_in}", "system:authenticated"]
    user = f"system:serviceaccount:{installed_in}:{account}"
    return await may(kube, user, groups, namespace=where, name=account, **attributes)


async def test_the_api_takes_every_object_and_admits_every_pod_as_restricted(
    kube: Kube, namespace: str, installed: list[Object]
) -> None:
    pods = dict(templates(installed))
    assert len(pods) == 2
    for name, template in pods.items():
        await create_dry(kube, namespace, name, template)


@pytest.mark.parametrize("rule", ["seccompProfile", "allowPrivilegeEscalation"])
async def test_a_pod_is_refused_when_it_breaks_a_rule_of_the_restricted_profile(
    kube: Kube, namespace: str, installed: list[Object], rule: str
) -> None:
    name, template = next(templates(installed))
    for context in (
        template["spec"]["securityContext"],
        template["spec"]["containers"][0]["securityContext"],
    ):
        context.pop(rule, None)
    with pytest.raises(errors.Forbidden, match='violates PodSecurity "restricted:latest".*' + rule):
        await create_dry(kube, namespace, name, template)


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_an_account_may_send_the_requests_of_its_components(
    kube: Kube, namespace: str, installed: list[Object], account: str
) -> None:
    assert installed
    denied = []
    for right in sorted(set(api_requests.of_account(account)) - {("", "secrets", "get")}):
        where = namespace if right.resource == "leases" else "default"
        if not await account_may(kube, namespace, account, where, *right):
            denied.append(right)
    assert denied == []


def printed(kubectl: Kubectl, user: str) -> set[tuple[str, str, frozenset[str]]]:
    """The resources, their names and verbs of `kubectl auth can-i --list`."""
    rows = re.findall(
        r"^(\S+) +\[\] +\[(.*?)\] +\[(.*?)\]$",
        kubectl("auth", "can-i", "--list", f"--as={user}"),
        re.MULTILINE,
    )
    return {(resource, names, frozenset(verbs.split())) for resource, names, verbs in rows}


def documented(account: str, *places: str) -> set[tuple[str, str, frozenset[str]]]:
    """The same of docs/reference/rights.md, in some places."""
    _, _, page = RIGHTS.read_text().partition(f"## {account}\n")
    rows = [line.split("|")[1:-1] for line in page.partition("\n## ")[0].splitlines() if "`" in line]
    return {
        (resource.strip(" `"), names.strip(" `"), frozenset(verbs.split()))
        for resource, names, place, verbs in rows
        if place.strip() in places
    }


@pytest.mark.kubectl
@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed: set KUBECTL or put it on PATH")
@pytest.mark.parametrize("account", ACCOUNTS)
def test_kubectl_prints_the_documented_rights_of_an_account(
    namespace: str, installed: list[Object], contract_kubeconfig: Path, tmp_path: Path, account: str
) -> None:
    assert installed
    for where, places in (
        (namespace, ("every namespace", "slipway-system")),
        ("default", ("every namespace",)),
    ):
        kubectl = Kubectl(contract_kubeconfig, tmp_path, where)
        user = f"system:serviceaccount:{namespace}"
        of_everyone = printed(kubectl, f"{user}:default")
        own = printed(kubectl, f"{user}:{account}") - of_everyone
        assert own == documented(account, *places)


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_an_account_may_not_read_secrets_make_pods_or_touch_leases_of_others(
    kube: Kube, namespace: str, installed: list[Object], account: str
) -> None:
    assert installed
    leases = "coordination.k8s.io"
    for where, *right in (
        ("default", "", "secrets", "get"),
        (namespace, "", "secrets", "get"),
        ("default", "", "pods", "create"),
        ("default", "", "pods/exec", "create"),
        ("", "", "nodes/proxy", "get"),
        ("default", leases, "leases", "create"),
        ("kube-system", leases, "leases", "update"),
        ("", "rbac.authorization.k8s.io", "clusterroles", "create"),
        ("default", "slipway.dev", "inferences", "delete"),
    ):
        assert not await account_may(kube, namespace, account, where, *right), (where, right)


async def test_the_gateway_writes_no_spec(kube: Kube, namespace: str, installed: list[Object]) -> None:
    assert installed
    for kind in (*kinds.OWN, kinds.DEPLOYMENT, kinds.SERVICE, kinds.ENDPOINT_SLICE):
        for verb in ("create", "update", "patch", "delete"):
            right = (kind.group, kind.plural, verb)
            assert not await account_may(kube, namespace, "slipway-gateway", "default", *right), right


async def test_the_controllers_read_the_secrets_of_a_namespace_once_it_is_bound(
    kube: Kube, namespace: str, installed: list[Object]
) -> None:
    assert installed
    binding = {
        "metadata": {"name": "slipway-secrets", "namespace": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"slipway-secrets-{namespace}",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "slipway-controllers", "namespace": namespace}],
    }
    await kube.create(ROLE_BINDING, binding)

    async def reads(where: str) -> bool:
        return await account_may(kube, namespace, "slipway-controllers", where, "", "secrets", "get")

    await until(lambda: reads(namespace), "the controllers read Secrets")
    assert not await reads("default")


@pytest.mark.parametrize(("role", "allowed"), [("view", {"get"}), ("edit", {"get", "create", "delete"})])
async def test_a_user_of_a_namespace_has_the_rights_of_the_role_for_inferences(
    kube: Kube, namespace: str, installed: list[Object], role: str, allowed: set[str]
) -> None:
    assert installed
    user = f"{role}er-of-{namespace}"
    binding = {
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await kube.create(ROLE_BINDING, binding)

    async def rights() -> set[str]:
        verbs = ("get", "create", "delete")
        inferences = {"group": "slipway.dev", "resource": "inferences", "namespace": namespace}
        return {verb for verb in verbs if await may(kube, user, [], verb=verb, **inferences)}

    async def settled() -> bool:
        return await rights() == allowed

    await until(settled, f"{role} has {allowed}")


async def test_every_right_is_for_a_request_that_the_api_serves(kube: Kube) -> None:
    others = [row for row in job_kinds.shipped() if row.api_kind.group != "batch"]
    async with job_definitions.defined(kube, *others):
        assert await unknown_rights(kube) == []


async def unknown_rights(kube: Kube) -> list[tuple[str, str]]:
    """The group and resource of rights for requests that the API does not serve."""
    served = {}
    versions = {"": "v1", "slipway.dev": kinds.MODEL.api_version, "resource.k8s.io": "resource.k8s.io/v1"}
    roles = [obj for obj in installation.objects() if obj["kind"] in ("Role", "ClusterRole")]
    for group in {group for role in roles for rule in role["rules"] for group in rule["apiGroups"]}:
        version = versions.get(group)
        if version is None:
            version = orjson.loads(await kube.raw(f"/apis/{group}"))["preferredVersion"]["groupVersion"]
        for resource in await discovery.resources(kube, version):
            served[group, resource["name"]] = set(resource["verbs"])
    return [
        (group, resource)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if not resource.endswith("/finalizers")
        and not served.get((group, resource), set()) >= set(rule["verbs"])
    ]
