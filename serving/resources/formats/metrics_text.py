"""Prometheus's text format, for pages that are written without prometheus_client."""

from collections.abc import Iterable


def escaped(value: str) -> str:
    """Return a label's value as it stands between quotation marks."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def family(name: str, kind: str, text: str, samples: Iterable[str]) -> str:
    """Return one metric: its help text, its type and its samples (whole lines)."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{''.join(samples)}"
