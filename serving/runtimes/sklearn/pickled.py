"""A scikit-learn estimator out of its pickle, with its large arrays left in the page cache.

joblib writes arrays behind each other, aligned and as they lie in memory, so a mapping of the file is the array. The
mapping is copy-on-write: what a model changes is its process's own, the file and other replicas never see it.
"""

import io
import math
import mmap
import pickle
from typing import Any

import joblib
from joblib.numpy_pickle import NumpyArrayWrapper, NumpyUnpickler
from sklearn.base import BaseEstimator

from serving import errors
from serving.runtimes.loading import Opened, Verified

_PICKLE = pickle.PROTO
"""First byte of every pickle since protocol 2; a compressed one begins with its compressor's."""


MAP_FROM_BYTES = 1024 * 1024
"""Size from which an array is a view of the model's file, which all replicas share; smaller arrays are copied, as
each view holds a descriptor and a mapping."""
MAP_AT_MOST = 256
"""Arrays of one model that are views: a process commonly may have 1,024 descriptors, most of them for clients."""


class _Unpickler(NumpyUnpickler):  # type: ignore[misc] # joblib has no types
    """joblib's own, which maps all arrays or none, told for each array whether to."""

    dispatch = NumpyUnpickler.dispatch.copy()

    def __init__(self, file: Opened) -> None:
        super().__init__(file.again, file.data, ensure_native_byte_order=True)
        self._left = MAP_AT_MOST

    def load_build(self) -> None:
        """Make an array where one is described, else an object of its state."""
        described, state = self.stack[-2], self.stack[-1]
        if isinstance(described, NumpyArrayWrapper):
            mapped = self._left > 0 and self._is_mappable(state)
            self._left -= mapped
            self.mmap_mode = "c" if mapped else None
            self.ensure_native_byte_order = not mapped
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def _is_mappable(self, state: dict[str, Any]) -> bool:
        dtype = state["dtype"]
        plain = dtype.isnative and not dtype.hasobject and state["allow_mmap"]
        # joblib before 1.2 did not align arrays.
        aligned = state.get("numpy_array_alignment_bytes") is not None
        return bool(plain and aligned and math.prod(state["shape"]) * dtype.itemsize >= MAP_FROM_BYTES)


def estimator(files: Verified) -> Any:
    """Unpickle the verified file.

    Raises:
        errors.Permanent: `UnsupportedModel`, it is not a scikit-learn estimator with `predict`; `LoadFailed`.
    """
    file = files.program
    try:
        if isinstance(file.data, mmap.mmap) and file.data[:1] == _PICKLE:
            model = _Unpickler(file).load()
        else:
            model = joblib.load(io.BytesIO(file.data))
    except Exception as error:  # unpickling runs the model's own code, which may raise anything
        raise errors.Permanent(
            "LoadFailed", f"the model does not load: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(model, BaseEstimator) or not callable(getattr(model, "predict", None)):
        raise errors.Permanent(
            "UnsupportedModel", f"{type(model).__name__} is no scikit-learn estimator with predict"
        )
    return model
