"""Estimators loaded from pickles: the same predictions, large arrays mapped."""

import gc
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from serving import errors
from serving.images.documents.output_manifest import OutputManifest
from serving.runtimes.loading import OpenFile, VerifiedModel
from serving.runtimes.sklearn import pickled

IMAGES, LABELS = load_digits(return_X_y=True)


class TableModel(BaseEstimator):
    """An estimator that is its array."""

    def __init__(self, values: Any = None) -> None:
        self.values = values

    def predict(self, rows: Any) -> Any:
        return self.values[: len(rows)]


def load(path: Path) -> Any:
    file = OpenFile(path)
    try:
        return pickled.estimator(VerifiedModel(file, {}, OutputManifest()))
    finally:
        file.close()


@pytest.fixture
def every_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of any size are mapped."""
    monkeypatch.setattr(pickled, "MAP_FROM_BYTES", 1)
    monkeypatch.setattr(pickled, "MAP_AT_MOST", 100_000)


@pytest.mark.usefixtures("every_array")
@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(5, random_state=0),
        GradientBoostingClassifier(n_estimators=3, max_depth=2, random_state=0),
        HistGradientBoostingClassifier(max_iter=3, random_state=0),
        LogisticRegression(max_iter=20),
        KNeighborsClassifier(algorithm="kd_tree"),
        KNeighborsClassifier(algorithm="brute"),
        make_pipeline(StandardScaler(), PCA(20), LogisticRegression(max_iter=20)),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_mapped_model_predicts_the_same(model: Any, tmp_path: Path) -> None:
    model.fit(IMAGES[:300], LABELS[:300])
    joblib.dump(model, tmp_path / "model.joblib")
    loaded = load(tmp_path / "model.joblib")
    assert (loaded.predict_proba(IMAGES) == model.predict_proba(IMAGES)).all()
    assert (loaded.predict(IMAGES) == model.predict(IMAGES)).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_large_array_is_a_copy_on_write_view_of_the_file(order: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.joblib"
    values = np.asarray(np.arange(300_000.0).reshape(3, -1), order=order)
    joblib.dump(TableModel(values), path)
    before = path.read_bytes()
    table = load(path)
    assert isinstance(table.values, np.memmap)
    assert (table.values == values).all()
    table.values[0, 0] = -1.0
    assert path.read_bytes() == before
    assert load(path).values[0, 0] == 0.0


@pytest.mark.parametrize(
    "values",
    [
        np.arange(10.0),
        np.arange(300_000.0).astype(">f8"),
        np.array(["x" * i for i in range(2000)], dtype=object),
        np.zeros((0, 5)),
    ],
    ids=["small", "other byte order", "objects", "empty"],
)
def test_small_and_object_arrays_are_copied(values: Any, tmp_path: Path) -> None:
    joblib.dump(TableModel(values), tmp_path / "model.joblib")
    loaded = load(tmp_path / "model.joblib").values
    assert not isinstance(loaded, np.memmap)
    assert (loaded == values).all()
    assert loaded.dtype.isnative


def test_the_number_of_mappings_of_a_model_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickled, "MAP_FROM_BYTES", 1)
    monkeypatch.setattr(pickled, "MAP_AT_MOST", 3)
    joblib.dump(TableModel([np.full(10, i) for i in range(5)]), tmp_path / "model.joblib")
    arrays = load(tmp_path / "model.joblib").values
    assert [isinstance(array, np.memmap) for array in arrays] == [True, True, True, False, False]
    assert [array[0] for array in arrays] == [0, 1, 2, 3, 4]


def test_no_descriptor_is_open_after_the_model_is_deleted(tmp_path: Path) -> None:
    joblib.dump(TableModel(np.arange(300_000.0)), tmp_path / "model.joblib")
    load(tmp_path / "model.joblib")
    gc.collect()
    opened = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert str(tmp_path / "model.joblib") not in {
        str(Path(link).readlink()) for link in opened if link.exists()
    }


@pytest.mark.parametrize("compress", ["gzip", "zlib", "xz", "bz2", "lzma"])
def test_a_compressed_model_loads(compress: str, tmp_path: Path) -> None:
    joblib.dump(TableModel(np.arange(300_000.0)), tmp_path / "model.joblib", compress=(compress, 1))
    assert (load(tmp_path / "model.joblib").values == np.arange(300_000.0)).all()


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_plain_pickle_loads(protocol: int, tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(TableModel(np.arange(3.0)), protocol))
    assert load(tmp_path / "model.pkl").values.tolist() == [0.0, 1.0, 2.0]


def test_the_opened_file_is_loaded_when_it_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model.joblib"
    joblib.dump(TableModel(np.full(300_000, 1.0)), path)
    joblib.dump(TableModel(np.full(300_000, 2.0)), tmp_path / "other")
    file = OpenFile(path)
    (tmp_path / "other").replace(path)
    files = VerifiedModel(file, {}, OutputManifest())
    assert pickled.estimator(files).values[-1] == 1.0
    files.close()


@pytest.mark.parametrize("content", [b"", b"\x80\x05no", b"nonsense"])
def test_an_invalid_pickle_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(content)
    with pytest.raises(errors.Permanent) as caught:
        load(tmp_path / "model.pkl")
    assert caught.value.reason == "LoadFailed"
