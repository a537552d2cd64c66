"""From a mounted model image to verified bytes. Nothing is unpickled that does not belong to the digest.

The chain: `$SLIPWAY_MODEL_DIGEST` is the hash of `manifest.json` (beside the model directory), which lists the
digest of every file. The pickle is loaded from the very bytes that were hashed, so that a file that is swapped
between the check and the use changes nothing.
"""

import hashlib
import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving import errors
from serving.images import manifest, oci

MODEL_FILES = ("model.joblib", "model.pkl")
_CHUNK = 1024 * 1024
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Verified:
    """The pickle and the description, as hashed."""

    pickle: bytes
    output: manifest.OutputManifest


def verified(directory: Path, digest: str) -> Verified:
    """Read and check everything below `directory`.

    Args:
        directory: the image's `models` directory; `manifest.json` lies beside it.
        digest: `sha256:<hex>` of the manifest.

    Raises:
        errors.Permanent: `DigestMismatch` (the message names the file), `InvalidImage`, `ModelFileMissing`.
    """
    image = _read(directory.parent / "manifest.json")
    if oci.digest_of(image) != digest:
        raise errors.Permanent(
            "DigestMismatch",
            f"manifest.json: must be the ModelVersion's {digest}, got {oci.digest_of(image)}",
        )
    expected = {file.path: file.digest for file in oci.files_of(image)}
    _check_names(directory, set(expected))
    names = [name for name in MODEL_FILES if name in expected]
    if len(names) != 1:
        raise errors.Permanent(
            "ModelFileMissing",
            f"exactly one of {', '.join(MODEL_FILES)} must be in the image, got {sorted(expected)[:20]}",
        )
    kept: dict[str, bytes] = {}
    for path, want in sorted(expected.items()):
        keep = path in {names[0], "slipway.json"}
        got, data = _hashed(directory / path, keep=keep)
        if got != want:
            raise errors.Permanent("DigestMismatch", f"{path}: must be {want}, got {got}")
        kept[path] = data
    output = manifest.parse(kept["slipway.json"]) if "slipway.json" in kept else manifest.OutputManifest()
    return Verified(kept[names[0]], output)


def estimator(pickle: bytes) -> Any:
    """Unpickle verified bytes.

    Raises:
        errors.Permanent: `UnsupportedModel`, it is not a scikit-learn estimator with `predict`; `LoadFailed`.
    """
    import joblib  # noqa: PLC0415 a refused model must not cost the imports
    from sklearn.base import BaseEstimator  # noqa: PLC0415 as above

    try:
        model = joblib.load(io.BytesIO(pickle))
    except Exception as error:  # unpickling runs the model's own code, which may raise anything
        raise errors.Permanent(
            "LoadFailed", f"the model does not load: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(model, BaseEstimator) or not callable(getattr(model, "predict", None)):
        raise errors.Permanent(
            "UnsupportedModel", f"{type(model).__name__} is no scikit-learn estimator with predict"
        )
    return model


def _check_names(directory: Path, expected: set[str]) -> None:
    found = {
        Path(at, name).relative_to(directory).as_posix()
        for at, directories, names in os.walk(directory)
        for name in [*names, *(d for d in directories if Path(at, d).is_symlink())]
    }
    for path in sorted(found ^ expected):
        rule = "is missing" if path in expected else "is not in the manifest"
        raise errors.Permanent("DigestMismatch", f"{path}: {rule}")


def _read(path: Path) -> bytes:
    return _hashed(path, keep=True)[1]


def _hashed(path: Path, *, keep: bool) -> tuple[str, bytes]:
    try:
        fd = os.open(path, _OPEN)
    except OSError as error:
        raise errors.Permanent("DigestMismatch", f"{path.name}: cannot be read: {error.strerror}") from error
    with os.fdopen(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise errors.Permanent("DigestMismatch", f"{path.name}: is not a regular file")
        if keep:
            data = file.readall()
            return oci.digest_of(data), data
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}", b""
