"""The stored kinds of a server with Slipway's definitions, as `up` starts it."""

from serving.embedded.apiserver.discovery import api_groups
from serving.embedded.apiserver.schema.stored_kinds import StoredKinds
from serving.resources import catalog

STORED_KINDS = StoredKinds(catalog.DEFINITIONS)
SERVED_KINDS = api_groups.served_kinds(STORED_KINDS)
