"""The model store: content-addressed blobs in an OCI layout, and unpacked, sealed trees of them.

    oci-layout, index.json         what skopeo and its like read
    blobs/sha256/<hex>             layers, configs, manifests
    trees/<manifest hex>/          mounted by replicas: manifest.json and models/..., files 0444, directories 0555
    trees/<manifest hex>.seal.json inode, size, mtime, ctime and digest of every file of the tree
    tmp/<random>/                  what is being written; locked by its writer

Everything becomes visible by one rename of something complete and synced; the rename of the tree comes last.
Killed at any moment, a writer leaves only a directory below `tmp`, which the next one removes. A tree costs
its bytes a second time (a tar and its contents share no blocks on ext4).
"""

import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from serving import errors
from serving.images import disk, layers, oci
from serving.images.source import Seen

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Sealed:
    """One file of a tree as it was when the tree was made."""

    digest: str
    seen: Seen


class Staging:
    """A private directory for one capture: blobs by digest, and the tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = path / "tree"
        self.blobs: dict[str, Path] = {}
        self.refs: list[tuple[Mapping[str, object], str]] = []
        (self.tree / layers.ROOT).mkdir(parents=True)

    def add(self, data: bytes) -> str:
        """Write a small blob; return its digest."""
        digest = oci.digest_of(data)
        path = self.path / digest.removeprefix("sha256:")
        disk.write_synced(path, data)
        self.blobs[digest] = path
        return digest


class ModelStore:
    """A store at `root`, made where it does not exist. Any number of processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs = root / "blobs" / "sha256"
        self._trees = root / "trees"
        self._tmp = root / "tmp"
        with disk.disk_full():
            for directory in (self._blobs, self._trees, self._tmp):
                directory.mkdir(parents=True, exist_ok=True)
            with self._locked():
                if not (root / "oci-layout").exists():
                    disk.replace(root / "oci-layout", oci.encode({"imageLayoutVersion": "1.0.0"}), self._tmp)
                self._sweep()

    def blob(self, digest: str) -> Path:
        """Where the blob with this digest lies."""
        return self._blobs / _hex(digest)

    def tree(self, digest: str) -> Path:
        """Where the unpacked image with this manifest digest lies: `manifest.json` and `models/`."""
        return self._trees / _hex(digest)

    def has(self, digest: str) -> bool:
        """Whether the image is in the store, whole."""
        return self.tree(digest).is_dir()

    def verify(self, digest: str, *, deep: bool = False) -> tuple[oci.File, ...]:
        """Return the image's files after checking its manifest and that nothing was touched since insertion.

        Args:
            digest: of the manifest.
            deep: read and hash every byte too.

        Raises:
            errors.Permanent: `ImageMissing`, `SealBroken` (the message names the file).
        """
        tree = self.tree(digest)
        try:
            manifest = (tree / "manifest.json").read_bytes()
            seal = _read_seal(self._seal(digest))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise errors.Permanent("ImageMissing", f"{digest} is not in the model store: {error}") from error
        if oci.digest_of(manifest) != digest:
            raise errors.Permanent("SealBroken", f"{tree}/manifest.json is not {digest}")
        files = oci.files_of(manifest)
        expected = {f"{layers.ROOT}/{file.path}": file.digest for file in files} | {"manifest.json": digest}
        if {path: sealed.digest for path, sealed in seal.items()} != expected:
            raise errors.Permanent("SealBroken", f"the seal of {digest} is not of this image")
        for path, now in disk.stat_tree(tree).items():
            if path not in seal or seal[path].seen != now:
                raise errors.Permanent("SealBroken", f"{tree / path} was touched after it was sealed")
            if deep and disk.file_digest(tree / path) != seal[path].digest:
                raise errors.Permanent("SealBroken", f"{tree / path} does not have the digest of its seal")
            expected.pop(path)
        if expected:
            raise errors.Permanent("SealBroken", f"{tree / min(expected)} is missing")
        return files

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        """Give a private directory, removed at the end unless the process is killed; the next `ModelStore` removes it then.

        Raises:
            errors.Temporary: `DiskFull`; nothing has become visible.
        """
        with disk.disk_full():
            with self._locked():
                path = Path(tempfile.mkdtemp(dir=self._tmp))
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                yield Staging(path)
            finally:
                disk.remove_tree(path)
                os.close(fd)

    def commit(self, staging: Staging, digest: str, digests: Mapping[str, str]) -> None:
        """Make a staged image visible: its blobs, its entries in the index, then its tree. Again is a no-op.

        Args:
            staging: has the blobs (the manifest too) and the tree without `manifest.json`.
            digest: of the manifest.
            digests: of each file of the tree, by path relative to `models/`.
        """
        manifest = staging.blobs[digest].read_bytes()
        disk.write_synced(staging.tree / "manifest.json", manifest)
        disk.freeze(staging.tree)
        with self._locked():
            for blob_digest, path in staging.blobs.items():
                path.chmod(0o444)
                if not self.blob(blob_digest).exists():
                    path.rename(self.blob(blob_digest))
            disk.sync_directory(self._blobs)
            self._index(staging)
            self._put_tree(staging, digest, digests)

    def _put_tree(self, staging: Staging, digest: str, digests: Mapping[str, str]) -> None:
        tree = self.tree(digest)
        if tree.exists():
            try:
                self.verify(digest)
            except errors.Permanent:
                tree.rename(staging.path / "broken")
            else:
                return
        named = {f"{layers.ROOT}/{path}": found for path, found in digests.items()} | {
            "manifest.json": digest
        }
        seal = {
            path: {"digest": named[path], **asdict(seen)}
            for path, seen in disk.stat_tree(staging.tree).items()
        }
        disk.replace(self._seal(digest), oci.encode({"image": digest, "files": seal}), self._tmp)
        # A directory must be writable for its own rename (its `..` changes), whoever owns its parent.
        staging.tree.chmod(0o755)
        staging.tree.rename(tree)
        tree.chmod(0o555)
        disk.sync_directory(self._trees)

    def _index(self, staging: Staging) -> None:
        path = self.root / "index.json"
        index = json.loads(path.read_bytes()) if path.exists() else {"manifests": []}
        entries: list[dict[str, object]] = list(index["manifests"])
        for fields, name in staging.refs:
            entry = {**fields} | (
                {"annotations": {"org.opencontainers.image.ref.name": name}} if name else {}
            )
            if entry not in entries:
                entries.append(entry)
        if entries != index["manifests"]:
            document = {"schemaVersion": 2, "mediaType": oci.INDEX_TYPE, "manifests": entries}
            disk.replace(path, oci.encode(document), self._tmp)

    def _seal(self, digest: str) -> Path:
        return self._trees / f"{_hex(digest)}.seal.json"

    def _sweep(self) -> None:
        for path in self._tmp.iterdir():
            if not path.is_dir():
                path.unlink()
                continue
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            else:
                disk.remove_tree(path)
            finally:
                os.close(fd)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _hex(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise errors.Permanent("InvalidDigest", f"{digest!r}: must be `sha256:` and 64 hexadecimal digits")
    return match.group(1)


def _read_seal(path: Path) -> dict[str, Sealed]:
    return {
        name: Sealed(file["digest"], Seen(file["inode"], file["size"], file["mtime_ns"], file["ctime_ns"]))
        for name, file in json.loads(path.read_bytes())["files"].items()
    }
