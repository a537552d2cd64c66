"""The kinds that a server stores: some of Kubernetes, and those of the definitions that it is given. Pure."""

from collections.abc import Iterable, Mapping

from serving.embedded.apiserver.schema import schemas
from serving.embedded.apiserver.schema.schemas import Schema
from serving.resources import definitions, kinds
from serving.resources.definitions import Definition
from serving.resources.kinds import Kind


class StoredKinds:
    """The stored kinds, by path and by type, and their schemas."""

    def __init__(self, custom: Iterable[Definition]) -> None:
        self.definitions: Mapping[Kind, Definition] = {entry.kind: entry for entry in custom}
        """The custom kinds; the others are `kinds.BUILTIN`."""
        self.all: tuple[Kind, ...] = (*self.definitions, *kinds.BUILTIN)
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in self.all}
        self._by_type = {(kind.api_version, kind.kind): kind for kind in self.all}
        self._schemas: dict[Kind, Schema] = {}

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        """Find a kind by the parts of its path; None if it is not stored."""
        return self._by_path.get((group, version, plural))

    def of(self, api_version: str, kind: str) -> Kind | None:
        """Find a kind by the two fields that every manifest has; None if it is not stored."""
        return self._by_type.get((api_version, kind))

    def schema(self, kind: Kind) -> Schema:
        """Return the schema of whole objects of this kind, without references; always the same object."""
        if kind not in self._schemas:
            self._schemas[kind] = self._make_schema(kind)
        return self._schemas[kind]

    def _make_schema(self, kind: Kind) -> Schema:
        if kind not in self.definitions:
            return schemas.of_builtin(kind)
        custom = definitions.schema(self.definitions[kind])
        metadata = schemas.definition_of("ObjectMeta")
        return {**custom, "properties": {**custom["properties"], "metadata": metadata}}
