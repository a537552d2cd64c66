"""Replicas import pandas only for a model that has pandas objects in it."""

import subprocess
import sys
from pathlib import Path

import joblib
import pytest
from sklearn.linear_model import LogisticRegression

PROGRAM = """
import sys
from serving.runtimes.sklearn import server
framework = server._framework()
import importlib
for name in server.PRELOAD:
    importlib.import_module(name)
print("pandas" in sys.modules)
import joblib
model = joblib.load(sys.argv[1])
print("pandas" in sys.modules, model.predict([[1.0, 0.0]]).tolist())
"""


def run(file: Path) -> list[str]:
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, check=True
    )
    return completed.stdout.splitlines()


def test_a_model_of_arrays_imports_no_pandas(tmp_path: Path) -> None:
    joblib.dump(LogisticRegression().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1]), tmp_path / "model.joblib")
    assert run(tmp_path / "model.joblib") == ["False", "False [1]"]


def test_a_model_with_a_data_frame_loads(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model = LogisticRegression().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    model.training_frame = pandas.DataFrame({"a": [0.0, 1.0]})
    joblib.dump(model, tmp_path / "model.joblib")
    assert run(tmp_path / "model.joblib") == ["False", "True [1]"]
