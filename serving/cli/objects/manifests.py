"""Reads manifests from files, directories or standard input, with the source of each document."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from serving import errors
from serving.cli.objects import json_values
from serving.cli.target import Target
from serving.resources import kinds
from serving.resources.formats import manifest_yaml
from serving.resources.kinds import Kind

MOST_COPIED = 1_000_000
"""Characters that aliases and merges may add to a document: the API takes hardly larger objects."""
MOST_MERGED = 10_000
"""Keys that merges may add to the mappings of a file: the largest objects have some thousands."""
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Document:
    """One object of a manifest."""

    source: str
    """`FILE`, or `FILE document N`, for messages."""
    kind: Kind
    namespace: str | None
    """None for kinds without a namespace."""
    name: str
    body: dict[str, Any]
    """The whole object, with its namespace."""


def read(names: list[str], target: Target) -> list[Document]:
    """Return the objects of all documents in order.

    Args:
        names: files, directories (without their subdirectories), or `-` for standard input.
        target: has the namespace of objects that name none.

    Raises:
        errors.UserError: a file does not exist, is not YAML, or has a document that is not a known object.
    """
    return [_document(source, body, target) for source, body in bodies(names)]


def bodies(names: list[str]) -> list[tuple[str, Any]]:
    """Return source (as in `Document`) and parsed YAML of all documents; a List counts as its items.

    `names` are those of `read`.

    Raises:
        errors.UserError: a file does not exist, is not YAML, or has a value that JSON cannot have or too
            many aliases; or no file has an object.
    """
    sources_and_bodies = [
        source_and_body
        for name in names
        for file, content in _texts(name)
        for source_and_body in _bodies_of_file(file, content)
    ]
    if not sources_and_bodies:
        raise errors.UserError(f"there are no objects in {', '.join(names)}")
    return sources_and_bodies


def _texts(name: str) -> Iterator[tuple[str, str]]:
    """Yield file name and content of each file of an argument."""
    if name == "-":
        try:
            yield "standard input", sys.stdin.read()
        except UnicodeDecodeError as error:
            raise errors.UserError(f"cannot read standard input: {error}") from error
        return
    for file in _files(Path(name)):
        try:
            yield str(file), file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise errors.UserError(
                f"cannot read {file}: {getattr(error, 'strerror', None) or error}"
            ) from error


def _files(path: Path) -> list[Path]:
    """Return the file itself, or the manifests of a directory."""
    try:
        files = sorted(f for f in path.iterdir() if f.suffix in SUFFIXES) if path.is_dir() else [path]
    except OSError as error:
        raise errors.UserError(f"cannot read {path}: {error.strerror}") from error
    if not files:
        raise errors.UserError(f"there are no {', '.join(SUFFIXES)} files in {path}")
    return files


def _bodies_of_file(file: str, content: str) -> Iterator[tuple[str, Any]]:
    try:
        parsed = _parsed(content)
        sizes = [json_values.size(body) for body in parsed]
    except RecursionError as error:
        raise errors.UserError(f"{file}: {json_values.TOO_DEEP}") from error
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise errors.UserError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    for number, (body, size) in enumerate(zip(parsed, sizes, strict=True), 1):
        source = f"{file} document {number}" if len(parsed) > 1 else file
        if (copied := size - len(content)) > MOST_COPIED:
            raise errors.UserError(
                f"{source}: aliases may add at most {MOST_COPIED} characters, got {copied}:"
                " write fewer of them"
            )
        if rule := json_values.broken_rule(body):
            raise errors.UserError(f"{source}: {rule}")
        items = body.get("items") if isinstance(body, dict) and body.get("kind") == "List" else [body]
        if not isinstance(items, list | None):
            raise errors.UserError(f"{source}: List: items: must be a list, not {type(items).__name__}")
        for item in items or []:
            yield source, item


def _parsed(content: str) -> list[Any]:
    if content.lstrip().startswith("{"):
        try:
            # JSON escapes a character beyond U+FFFF as a surrogate pair, of which YAML makes two characters.
            return [json.loads(content)]
        except ValueError:
            pass  # YAML in flow style also begins with a brace
    return [body for body in yaml.load_all(content, _ManifestLoader) if body is not None]


class _ManifestLoader(manifest_yaml.Loader):
    """Bounds the keys that merges (`<<`) copy, as each level of a document could multiply their number."""

    merged_keys = 0

    def flatten_mapping(self, node: Any) -> None:
        keys_before = len(node.value)
        super().flatten_mapping(node)
        self.merged_keys += max(0, len(node.value) - keys_before)
        if self.merged_keys > MOST_MERGED:
            problem = f"merges may add at most {MOST_MERGED} keys to the mappings of a file"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _document(source: str, body: Any, target: Target) -> Document:
    """Return the object of a parsed document, with the namespace of the target if it names none."""
    if not isinstance(body, dict):
        raise errors.UserError(f"{source}: must be an object, not {type(body).__name__}")
    api_version, word = body.get("apiVersion"), body.get("kind")
    if not api_version or not word:
        raise errors.UserError(f"{source}: {'kind' if api_version else 'apiVersion'} is missing")
    kind = kinds.of(str(api_version), str(word))
    if kind is None:
        raise errors.UserError(
            f"{source}: {word} of {api_version} is not a kind that slipway handles; try kubectl"
        )
    meta = body.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise errors.UserError(f"{source}: {word}: metadata.name is missing")
    namespace = meta.get("namespace") or target.namespace
    if not isinstance(namespace, str):
        raise errors.UserError(
            f"{source}: {word}: metadata.namespace: must be a string, not {type(namespace).__name__}"
        )
    try:
        kind.path(namespace, meta["name"])  # raises for a name that no path can have
    except errors.Invalid as error:
        raise errors.UserError(f"{source}: {error}") from error
    if target.explicit and namespace != target.namespace:
        raise errors.UserError(
            f"{source}: {word} {meta['name']} is for namespace {namespace}, but -n says {target.namespace}"
        )
    if not kind.namespaced:
        return Document(source, kind, None, meta["name"], body)
    return Document(
        source, kind, namespace, meta["name"], {**body, "metadata": {**meta, "namespace": namespace}}
    )
