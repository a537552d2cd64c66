"""Downloads a directory or one file from any storage that fsspec supports.

Files that a killed or failed attempt has downloaded are reused.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import fsspec
from fsspec.callbacks import Callback
from fsspec.implementations.local import LocalFileSystem

from serving import errors
from serving.images.building.source import MAX_FILES
from serving.images.documents import layers
from serving.images.store import disk

_PARALLEL = 4
"""Concurrent downloads: one stream from an object store seldom fills the link."""
_OF_THIS_MACHINE = frozenset({"file", "local", "asynclocal"})
"""fsspec's protocols of the machine's own files, of the package morefs too."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
"""Of http:// and https://: aiohttp's default ends each download after five minutes, however fast it is; here
only a server that sends nothing for a minute ends it."""
_TOKENS = "fetched.json"
"""File with the token of each file of the latest listing, by path."""
_FILES = "files"
"""Directory of the downloaded files."""
_NOT_OF_THE_FILE = frozenset({"time", "accessTime", "last_accessed_on", "url"})
"""Fields of fsspec's information that may change while a file does not: the times of access of SFTP, SMB,
HDFS and Azure, which a download moves, and the address of a redirect, which may be signed anew each time."""

Listing = Mapping[str, Mapping[str, Any]]
"""fsspec's information about each file (`name`, `size`, ...), by path below the source."""


class Progress(Callback):  # type: ignore[misc] # fsspec has no types
    """Counts the bytes of all files together and reports them."""

    def __init__(self, report: Callable[[str], None], total: int) -> None:
        super().__init__()
        self._report = report
        self._total = total
        self._done = 0

    def relative_update(self, inc: int = 1) -> None:
        """Add bytes, from any thread: a lost update only makes the message less exact."""
        self._done += inc
        self._report(f"fetched {_mib(self._done)} of {_mib(self._total)}")

    def branched(self, *_: Any, **__: Any) -> "Progress":
        """Return the callback for one file, which is this one."""
        return self


def _mib(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"


def fetch(uri: str, into: Path, report: Callable[[str], None]) -> Path:
    """Download `uri`; returns the directory that has exactly its files.

    Args:
        uri: a directory or one file.
        into: a directory for this source alone; files from an earlier attempt are reused.
        report: takes messages about progress, often and from other threads.

    Raises:
        errors.Permanent: `UnknownStorage`, `StorageDriverMissing`, `SourceNotFound`, `EmptyOutput`,
            `InvalidOutput`, `TooManyFiles`.
        errors.Temporary: `SourceUnavailable`, `SourceForbidden`, `OutputStillChanging`, `DiskFull`.
    """
    with _storage_errors(uri), disk.full_disk_mapped():
        # A user's configuration of fsspec may have other options of the session, such as a login.
        options = {"get_client": _session} if uri.startswith(("http://", "https://")) else {}
        system, root = fsspec.core.url_to_fs(uri, skip_instance_cache=True, **options)
        _check_remote(system, uri)
        listing = _list(system, uri, root)
        target = into / _FILES
        _fetch_all(system, listing, into, report)
        if _tokens(_list(system, uri, root)) != _tokens(listing):
            raise errors.Temporary("OutputStillChanging", f"{uri}: files changed while they were fetched")
    return target


async def _session(**options: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(**{"timeout": _TIMEOUT, **options})


@contextmanager
def _storage_errors(uri: str) -> Iterator[None]:
    """Translate the errors of fsspec and its drivers."""
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
    except Exception as error:  # drivers pass their clients' errors on: botocore's, google's, azure's
        # fsspec has no type for this error; its message is `Protocol not known: SCHEME`.
        if isinstance(error, ValueError) and "rotocol not known" in str(error):
            raise errors.Permanent("UnknownStorage", f"{uri}: fsspec does not support {scheme}://") from error
        raise errors.Temporary("SourceUnavailable", f"{uri}: {type(error).__name__}: {error}") from error


def _check_remote(system: Any, uri: str) -> None:
    """Refuse the machine's own files: only a source `path` or file:// is kept out of the data directory."""
    while isinstance(system, fsspec.AbstractFileSystem):
        protocols = {system.protocol} if isinstance(system.protocol, str) else {*system.protocol}
        if isinstance(system, LocalFileSystem) or protocols & _OF_THIS_MACHINE:
            raise errors.Permanent("InvalidOutput", f"{uri}: must name files of this machine by file://")
        system = getattr(system, "fs", None) or getattr(system, "sync_fs", None)  # of a wrapper


def _list(system: Any, uri: str, root: str) -> Listing:
    """Return the files below `root`, which is the path of `uri` in the storage; `root` may be one file."""
    system.invalidate_cache()
    top = root.rstrip("/")
    listing: dict[str, Mapping[str, Any]] = {}
    for path, info in system.find(root, detail=True).items():
        is_below = path.startswith(f"{top}/")
        name = path.removeprefix(f"{top}/") if is_below else top.rsplit("/", 1)[-1]
        if info.get("type", "file") != "file" or not path.startswith(top):
            raise errors.Permanent("InvalidOutput", f"{path}: must be a file below {uri}")
        listing[name] = {**info, "name": path}
    if not listing:
        if not system.exists(root):
            raise errors.Permanent("SourceNotFound", f"{uri}: not found")
        raise errors.Permanent("EmptyOutput", f"{uri}: has no files")
    if len(listing) > MAX_FILES:
        raise errors.Permanent("TooManyFiles", f"{uri}: has {len(listing)} files, more than {MAX_FILES}")
    layers.check_paths(sorted(listing))
    # A listing of HTTP has names alone, from the links of a page.
    unknown = [name for name, info in listing.items() if info.get("size") is None]
    with ThreadPoolExecutor(_PARALLEL) as pool:
        known = pool.map(lambda name: _info(system, listing[name]["name"]), unknown)
        return {**listing, **dict(zip(unknown, known, strict=True))}


def _info(system: Any, path: str) -> Mapping[str, Any]:
    """Return the information about one listed file."""
    try:
        info = {**system.info(path), "name": path}
    except FileNotFoundError as error:  # of HTTP: any error
        raise errors.Temporary("SourceUnavailable", f"{path}: {error.__cause__ or error}") from error
    if "Last-Modified" in info:
        info.pop("ETag", None)  # the servers of one mirror may have another one each for an unchanged file
    return info


def _tokens(listing: Listing) -> dict[str, str]:
    """Return a token of each file, which changes with the file's entry in the listing.

    A token is a hash of all that the storage reports of the file, such as size, time, version and checksum.
    """
    tokens = {}
    for name, info in listing.items():
        items = sorted(str(item) for item in info.items() if item[0] not in _NOT_OF_THE_FILE)
        tokens[name] = hashlib.sha256(repr(items).encode()).hexdigest()
    return tokens


def _fetch_all(system: Any, listing: Listing, into: Path, report: Callable[[str], None]) -> None:
    """Make the directory `files` of `into` have exactly the listed files; download those that it lacks."""
    target, tokens = into / _FILES, _tokens(listing)
    earlier = _earlier_tokens(into / _TOKENS)
    unchanged = {name for name, token in tokens.items() if earlier.get(name) == token}
    for name in set(_present(target)) - unchanged:
        (target / name).unlink()
    for directory, _, _ in os.walk(target, topdown=False):  # a listed file may have a directory's name now
        with suppress(OSError):  # it has files
            Path(directory).rmdir()
    target.mkdir(parents=True, exist_ok=True)
    kept = set(_present(target))
    # The tokens can precede the downloads: a file in the directory is complete, and fits its token.
    (into / _TOKENS).write_text(json.dumps(tokens))
    missing = {name: info for name, info in listing.items() if name not in kept}
    progress = Progress(report, sum(int(info.get("size") or 0) for info in missing.values()))
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
    """Download one file; it appears under its name when it is complete."""
    try:
        system.get_file(info["name"], str(part), callback=progress)
    except FileNotFoundError as error:
        raise errors.Temporary("OutputStillChanging", f"{info['name']}: has disappeared: {error}") from error
    size = part.stat().st_size
    if info.get("size") is not None and size != int(info["size"]):
        raise errors.Temporary(
            "OutputStillChanging", f"{info['name']}: {size} bytes received, {info['size']} expected"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part.replace(target)


def _earlier_tokens(path: Path) -> Mapping[str, str]:
    """Return the tokens of the last attempt's files; empty if they cannot be read: no file is reused."""
    try:
        tokens = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return tokens if isinstance(tokens, dict) else {}


def _present(target: Path) -> list[str]:
    """Return the paths of all files below a directory, relative to the directory."""
    return [
        str(Path(directory, name).relative_to(target))
        for directory, _, names in os.walk(target)
        for name in names
    ]
