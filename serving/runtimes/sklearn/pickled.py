"""Loads a scikit-learn estimator from its pickle, and maps its large arrays instead of copying them.

joblib writes arrays one after another, aligned and in their memory layout, so that a mapping of the file can
be used as the array. Mappings are copy-on-write: changes by a model reach neither the file nor other
replicas.
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
from serving.runtimes.loading import OpenFile, VerifiedModel

_PICKLE = pickle.PROTO
"""First byte of every pickle since protocol 2; compressed files begin with other bytes."""
MAP_FROM_BYTES = 1024 * 1024
"""Size from which an array is mapped, so that all replicas share it; smaller arrays are copied, as each
mapping takes a descriptor."""
MAP_AT_MOST = 256
"""Most mapped arrays of a model: a process usually may have 1,024 descriptors, most of them for clients."""


class _Unpickler(NumpyUnpickler):  # type: ignore[misc] # joblib has no types
    """Decides for each array whether it is mapped; joblib's unpickler maps all arrays of a file or none."""

    dispatch = NumpyUnpickler.dispatch.copy()

    def __init__(self, file: OpenFile) -> None:
        super().__init__(file.reopen_path, file.data, ensure_native_byte_order=True)
        self._mappings_left = MAP_AT_MOST

    def load_build(self) -> None:
        """Build the object on top of the stack; decide first whether an array is mapped."""
        instance, state = self.stack[-2], self.stack[-1]
        if isinstance(instance, NumpyArrayWrapper):
            is_mapped = self._mappings_left > 0 and self._is_mappable(state)
            self._mappings_left -= is_mapped
            self.mmap_mode = "c" if is_mapped else None
            # joblib cannot convert a mapped array; `_is_mappable` refuses one of foreign byte order.
            self.ensure_native_byte_order = not is_mapped
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def _is_mappable(self, state: dict[str, Any]) -> bool:
        """Return whether an array can be mapped and is large enough; `state` is its wrapper's."""
        dtype = state["dtype"]
        is_plain = dtype.isnative and not dtype.hasobject and state["allow_mmap"]
        # joblib before 1.2 did not align arrays.
        is_aligned = state.get("numpy_array_alignment_bytes") is not None
        return bool(is_plain and is_aligned and math.prod(state["shape"]) * dtype.itemsize >= MAP_FROM_BYTES)


def estimator(files: VerifiedModel) -> Any:
    """Unpickle the verified file.

    Raises:
        errors.Permanent: `LoadFailed`; `UnsupportedModel`, no scikit-learn estimator with `predict`.
    """
    file = files.program
    try:
        if isinstance(file.data, mmap.mmap) and file.data[:1] == _PICKLE:
            model = _Unpickler(file).load()
        else:  # a compressed file, or an empty one, which is not mapped
            model = joblib.load(io.BytesIO(file.data))
    except Exception as error:  # unpickling runs the model's own code, which may raise anything
        raise errors.Permanent(
            "LoadFailed", f"the model does not load: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(model, BaseEstimator) or not callable(getattr(model, "predict", None)):
        raise errors.Permanent(
            "UnsupportedModel", f"{type(model).__name__} is not a scikit-learn estimator with predict"
        )
    return model
