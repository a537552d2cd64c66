"""Label selectors in the notation of `-l` and of the query parameter `labelSelector`."""

from collections.abc import Mapping
from typing import Any


def text(selector: Mapping[str, Any]) -> str:
    """Return a metav1.LabelSelector in the notation of `-l`."""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    words = {"In": "in", "NotIn": "notin"}
    for rule in selector.get("matchExpressions") or ():
        operator = rule.get("operator")
        if operator in words:
            parts.append(f"{rule['key']} {words[operator]} ({','.join(sorted(rule.get('values') or ()))})")
        else:
            parts.append(rule["key"] if operator == "Exists" else f"!{rule['key']}")
    return ",".join(parts)
