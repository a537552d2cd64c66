"""YAML of manifests, as Kubernetes reads it (sigs.k8s.io/yaml): JSON's types alone."""

import re
from typing import Any

import yaml

_PREFIX = "tag:yaml.org,2002:"
_NUMBERS = (f"{_PREFIX}int", f"{_PREFIX}float")
_TIMESTAMP = f"{_PREFIX}timestamp"


class Loader(yaml.SafeLoader):
    """Reads plain dates, and numbers of base 60 such as `12:30:45`, as strings."""


def _resolver(tag: str, pattern: re.Pattern[str]) -> tuple[str, re.Pattern[str]]:
    # Only numbers of base 60 have a colon.
    return tag, re.compile(f"(?!.*:){pattern.pattern}", re.VERBOSE) if tag in _NUMBERS else pattern


_resolvers: dict[str, Any] = {
    first: [_resolver(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.yaml_implicit_resolvers = _resolvers
