"""Writes the output files of commands, atomically and in the format of their suffix."""

import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from serving import errors
from serving.system.files import atomic_file

_BY_SUFFIX: Mapping[str, str] = {".html": "html", ".htm": "html", ".json": "json", ".txt": "text"}


def form(out: Path) -> str:
    """Return `html`, `json` or `text`, by the suffix.

    Raises:
        errors.UserError: no format has the suffix.
    """
    file_form = _BY_SUFFIX.get(out.suffix.lower())
    if file_form is None:
        raise errors.UserError(f"{out} is not a .html, .json or .txt file: choose the format with -o")
    return file_form


def put(out: Path | None, text: str) -> None:
    """Write the text to the file `out`, or, without a file, to standard output."""
    if out is None:
        print(text, end="")
    else:
        write(out, text)


def write(out: Path, text: str) -> None:
    """Write the whole file or nothing, and print its name; a link stays, and its file is written.

    A device or a FIFO receives the text and stays; what it has received before a failure it keeps.

    Raises:
        errors.UserError: the file cannot be written.
    """
    try:
        is_replaced = _is_regular_or_missing(out)
        if is_replaced:
            atomic_file.replace(out.resolve(), text.encode())
        else:
            with out.open("wb") as file:
                file.write(text.encode())
    except OSError as error:
        raise errors.UserError(f"cannot write {out}: {error.strerror or error}") from error
    # /dev/stdout and what it is piped to have the text alone.
    print(f"wrote {out}", file=sys.stdout if is_replaced else sys.stderr)


def _is_regular_or_missing(out: Path) -> bool:
    try:
        return stat.S_ISREG(out.stat().st_mode)
    except FileNotFoundError:
        return True
