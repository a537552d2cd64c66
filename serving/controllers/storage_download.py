"""Fetches a directory (or one file) from any storage that fsspec reaches, into a directory of ours.

Files that a killed or failed try has fetched are not fetched again. It decides nothing about images.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
from fsspec.callbacks import Callback

from serving import errors
from serving.images.capture.source import MAX_FILES
from serving.images.documents import layers
from serving.images.store import disk

_PARALLEL = 4
"""Files at once: one stream from an object store seldom fills the link."""
_FETCHED = "fetched.json"
_FILES = "files"

Listing = Mapping[str, Mapping[str, Any]]
"""What the storage says of each file, by its path below the source."""


class Progress(Callback):  # type: ignore[misc] # fsspec has no types
    """Counts bytes over all files; `say` gets what people should read."""

    def __init__(self, say: Callable[[str], None], total: int) -> None:
        super().__init__()
        self._say = say
        self._total = total
        self._done = 0

    def relative_update(self, inc: int = 1) -> None:
        """Take some bytes more, from any thread: a lost update only makes the words less exact."""
        self._done += inc
        self._say(f"fetched {_mib(self._done)} of {_mib(self._total)}")

    def branched(self, *_: Any, **__: Any) -> "Progress":
        """Return the callback of one file: the same, as bytes are counted together."""
        return self


def _mib(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"


def fetch(uri: str, into: Path, say: Callable[[str], None]) -> Path:
    """Fetch what `uri` names; returns the directory that has exactly its files.

    Args:
        uri: a directory or one file.
        into: a directory of this source alone; what is in it from an earlier try is used.
        say: told how far it is, often; from other threads.

    Raises:
        errors.Permanent: `UnknownStorage`, `StorageDriverMissing`, `SourceNotFound`, `EmptyOutput`, `InvalidOutput`,
            `TooManyFiles`.
        errors.Temporary: `SourceUnavailable`, `SourceForbidden`, `OutputStillChanging`, `DiskFull`.
    """
    with _mapped(uri), disk.disk_full():
        system, root = fsspec.core.url_to_fs(uri, skip_instance_cache=True)
        seen = _list(system, uri, root)
        target = into / _FILES
        _fetch_all(system, seen, into, say)
        if _tokens(_list(system, uri, root)) != _tokens(seen):
            raise errors.Temporary("OutputStillChanging", f"{uri}: files changed while they were fetched")
    return target


@contextmanager
def _mapped(uri: str) -> Iterator[None]:
    scheme = uri.partition("://")[0]
    try:
        yield
    except errors.SlipwayError:
        raise
    except ImportError as error:
        raise errors.Permanent(
            "StorageDriverMissing", f"{uri}: no driver for {scheme}:// is installed: {error}"
        ) from error
    except FileNotFoundError as error:
        raise errors.Permanent("SourceNotFound", f"{uri}: {error}") from error
    except PermissionError as error:
        raise errors.Temporary("SourceForbidden", f"{uri}: {error}") from error
    except Exception as error:  # drivers raise what their clients raise: botocore's, google's, azure's
        if isinstance(error, ValueError) and "rotocol not known" in str(error):
            raise errors.Permanent("UnknownStorage", f"{uri}: fsspec knows no {scheme}://") from error
        raise errors.Temporary("SourceUnavailable", f"{uri}: {type(error).__name__}: {error}") from error


def _list(system: Any, uri: str, root: str) -> Listing:
    system.invalidate_cache()
    top = root.rstrip("/")
    found: dict[str, Mapping[str, Any]] = {}
    for path, info in system.find(root, detail=True).items():
        name = path[len(top) + 1 :] if path.startswith(f"{top}/") else top.rsplit("/", 1)[-1]
        if info.get("type", "file") != "file" or not path.startswith(top):
            raise errors.Permanent("InvalidOutput", f"{path}: must be a file below {uri}")
        found[name] = {**info, "name": path}
    if not found:
        if not system.exists(root):
            raise errors.Permanent("SourceNotFound", f"{uri}: there is nothing")
        raise errors.Permanent("EmptyOutput", f"{uri}: there are no files")
    if len(found) > MAX_FILES:
        raise errors.Permanent("TooManyFiles", f"{uri}: has {len(found)} files, more than {MAX_FILES}")
    layers.check_paths(sorted(found))
    return found


def _tokens(listing: Listing) -> dict[str, str]:
    """Return what changes when a file does: sizes, times, versions and checksums, as far as the storage has them."""
    return {
        name: hashlib.sha256(repr(sorted(map(str, info.items()))).encode()).hexdigest()
        for name, info in listing.items()
    }


def _fetch_all(system: Any, seen: Listing, into: Path, say: Callable[[str], None]) -> None:
    target, tokens = into / _FILES, _tokens(seen)
    target.mkdir(parents=True, exist_ok=True)
    fetched = _earlier(into / _FETCHED)
    for name in set(_present(target)) - {n for n, token in tokens.items() if fetched.get(n) == token}:
        (target / name).unlink()
    kept = set(_present(target))
    (into / _FETCHED).write_text(json.dumps(tokens))
    missing = {name: info for name, info in seen.items() if name not in kept}
    progress = Progress(say, sum(int(info.get("size") or 0) for info in missing.values()))
    with ThreadPoolExecutor(_PARALLEL) as pool:
        jobs = [
            pool.submit(_fetch_one, system, info, into / f"part-{number}", target / name, progress)
            for number, (name, info) in enumerate(missing.items())
        ]
        try:
            for job in jobs:
                job.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _fetch_one(system: Any, info: Mapping[str, Any], part: Path, target: Path, progress: Progress) -> None:
    """The file appears under its name when it is whole."""
    try:
        system.get_file(info["name"], str(part), callback=progress)
    except FileNotFoundError as error:
        raise errors.Temporary(
            "OutputStillChanging", f"{info['name']}: is not there any more: {error}"
        ) from error
    size = part.stat().st_size
    if info.get("size") is not None and size != int(info["size"]):
        raise errors.Temporary(
            "OutputStillChanging", f"{info['name']}: {size} bytes came, {info['size']} were announced"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part.replace(target)


def _earlier(path: Path) -> Mapping[str, str]:
    """Return the tokens of the last try's files; whatever is wrong with them costs fetching again."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _present(target: Path) -> list[str]:
    return [
        str(Path(directory, name).relative_to(target))
        for directory, _, names in os.walk(target)
        for name in names
    ]
