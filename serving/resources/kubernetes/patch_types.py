"""The media types of patches: what a PATCH request asks the API to do with its body. Pure."""

JSON_PATCH = "application/json-patch+json"
"""Operations on paths, RFC 6902."""
MERGE_PATCH = "application/merge-patch+json"
"""Fields to set, and null for those to remove, RFC 7386."""
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""A merge patch that merges the lists of built-in kinds by the keys of their entries."""
APPLY_PATCH = "application/apply-patch+yaml"
"""Server-side apply."""
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
PATCHES_OF_CUSTOM_KINDS = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
