"""Size of the repository at one or more commits: product files, lines, classes, tests and pinned packages.

The product is the Python of `serving`, `tuner` and `autoscaler` without generated Protobuf modules. A line of
code has a token that is neither a comment nor part of a docstring; strings that document a field count as
docstrings. A shape is the set of a class's annotated fields, by name and type, of at least two; a repeated
shape is one of several classes. Files come from `git archive`, so a checkout need not be clean.
"""

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rig.harness import ROOT, report

PACKAGES = ("serving", "tuner", "autoscaler")
LOCK = "requirements.lock"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
_LEAST_FIELDS = 2
"""Fields of a shape: with one alone, most classes that are alike are so by chance."""

Shape = frozenset[tuple[str, str]]
"""Name and annotation of each field."""


@dataclass(frozen=True)
class Module:
    """Counts of one Python file."""

    code_lines: int
    docstring_lines: int
    shapes: tuple[Shape, ...]
    """One for each class, in the order of the file; empty for a class without annotated fields."""


def module(source: str) -> Module:
    """Return the counts of a file."""
    tree = ast.parse(source)
    docstrings = {line for node in ast.walk(tree) if _is_docstring(node) for line in _lines(node)}
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    shapes = tuple(_shape(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return Module(len(code - docstrings), len(docstrings), shapes)


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _lines(node: ast.AST) -> range:
    assert isinstance(node, ast.Expr)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _shape(node: ast.ClassDef) -> Shape:
    return frozenset(
        (field.target.id, ast.unparse(field.annotation))
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )


def size(files: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of a commit from its text files by path."""
    modules = {
        path: module(text)
        for path, text in files.items()
        if path.endswith(".py") and not path.endswith("_pb2.py")
    }
    packages = {name: [m for path, m in modules.items() if path.startswith(f"{name}/")] for name in PACKAGES}
    tests = {path: m for path, m in modules.items() if path.startswith("tests/")}
    return {
        "product": figures([m for package in packages.values() for m in package]),
        **{name: figures(package) for name, package in packages.items()},
        "testFiles": sum(path.rpartition("/")[2].startswith("test_") for path in tests),
        "testCodeLines": sum(m.code_lines for m in tests.values()),
        "pinnedPackages": sum("==" in line for line in files[LOCK].splitlines() if line[:1].isalnum()),
    }


def figures(modules: Sequence[Module]) -> dict[str, int]:
    """Return the sums of some files; shapes are compared among these files alone."""
    classes = [shape for m in modules for shape in m.shapes]
    shapes = Counter(shape for shape in classes if len(shape) >= _LEAST_FIELDS)
    return {
        "files": len(modules),
        "codeLines": sum(m.code_lines for m in modules),
        "docstringLines": sum(m.docstring_lines for m in modules),
        "classes": len(classes),
        "repeatedShapes": sum(count > 1 for count in shapes.values()),
    }


def archive(commit: str) -> Iterator[tuple[str, str]]:
    """Return path and text of the Python files and the lock of a commit."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for member in tar:
            if member.isfile() and (member.name.endswith(".py") or member.name == LOCK):
                content = tar.extractfile(member)
                assert content is not None  # a regular file has content
                yield member.name, content.read().decode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="names of commits; default: HEAD")
    options = parser.parse_args()
    report("code_size", {commit: size(dict(archive(commit))) for commit in options.commits}, [])
