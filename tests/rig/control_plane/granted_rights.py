"""The rights that roles and their bindings give to accounts, one for each resource and verb of a rule."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from serving.objects import Object
from tests.rig.control_plane.recorded_requests import RecordedRequest


class Right(NamedTuple):
    """A verb for a resource that a rule grants to an account."""

    account: str
    namespace: str
    """Of the Role; empty for a ClusterRole."""
    group: str
    resource: str
    verb: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.account}: {self.verb} {self.resource} of {self.group or 'v1'}"

    def covers(self, request: RecordedRequest) -> bool:
        """Whether a request needs this right; `create` names no object."""
        return (
            self.account == request.account
            and self.namespace in ("", request.namespace)
            and (self.group, self.resource, self.verb) == (request.group, request.resource, request.verb)
            and (not self.names or request.name in self.names)
        )


def granted(objects: list[Object]) -> Iterator[Right]:
    """Yield the rights of all accounts, one for each resource and verb of a rule."""
    roles = {
        (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj["rules"]
        for obj in objects
        if obj["kind"] in ("Role", "ClusterRole")
    }
    for binding in (obj for obj in objects if obj["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        namespace = binding["metadata"].get("namespace", "")
        for rule in roles[binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]]:
            for subject in binding["subjects"]:
                for group, resource, verb in product(rule["apiGroups"], rule["resources"], rule["verbs"]):
                    names = tuple(rule.get("resourceNames", ()))
                    yield Right(subject["name"], namespace, group, resource, verb, names)
