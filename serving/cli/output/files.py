"""Files that commands write: the whole or nothing, in the form that their name says."""

from collections.abc import Mapping
from pathlib import Path

from serving import errors
from serving.system import atomic_file

_BY_SUFFIX: Mapping[str, str] = {".html": "html", ".htm": "html", ".json": "json", ".txt": "text"}


def form(out: Path) -> str:
    """Return `html`, `json` or `text`, by the file's name.

    Raises:
        errors.UserError: it says none of them.
    """
    known = _BY_SUFFIX.get(out.suffix.lower())
    if known is None:
        raise errors.UserError(f"{out} is no .html, .json or .txt: say which of them with -o")
    return known


def put(out: Path | None, text: str) -> None:
    """Print the text, or write it to a file."""
    if out is None:
        print(text, end="")
    else:
        write(out, text)


def write(out: Path, text: str) -> None:
    """Write the whole file or nothing.

    Raises:
        errors.UserError: it cannot be written.
    """
    try:
        atomic_file.replace(out, text.encode())
    except OSError as error:
        raise errors.UserError(f"cannot write {out}: {error.strerror or error}") from error
    print(f"wrote {out}")
