"""The code in the image of a model version and the image's signers, as lines of text. Pure."""

from collections.abc import Mapping
from typing import Any

from serving.cli.output import tables
from serving.planning.models import policy

_UNKNOWN = frozenset({"Unrecognized", "Archive", "Compressed"})
"""Formats of files that may have code, as nothing is known of their contents."""


def lines(status: Mapping[str, Any]) -> list[str]:
    """Return the lines for a version's status; empty until its image has been examined."""
    contents = status.get("contents")
    if contents is None:
        return []
    shown = [*_code(contents), _signatures(status.get("signedBy") or [])]
    return [tables.printable(line) for line in shown]


def _code(contents: Mapping[str, Any]) -> list[str]:
    files = contents.get("files") or []
    if not contents["containsCode"]:
        return ["contains no code: every file holds data alone"]
    certain = [file for file in files if file["format"] not in _UNKNOWN]
    possible = [file for file in files if file["format"] in _UNKNOWN]
    parts = []
    if certain:
        parts.append(f"contains code, which each replica runs: {policy.format_files(certain)}")
    if possible:
        parts.append(f"may contain code, as the format is not known: {policy.format_files(possible)}")
    return parts


def _signatures(signed_by: list[str]) -> str:
    return f"signed by {', '.join(signed_by)}" if signed_by else "not signed by a known key"
