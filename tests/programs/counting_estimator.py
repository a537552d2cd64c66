"""An estimator that logs its calls: each takes a fixed time and appends a line to a file."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

CALL_SECONDS = 0.02


class CountingEstimator(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Predicts ten times the first of its two features."""

    n_features_in_ = 2

    def __init__(self, file: str) -> None:
        self.file = file

    def predict(self, rows: Any) -> Any:
        time.sleep(CALL_SECONDS)
        with Path(self.file).open("a") as file:
            file.write(" ".join(str(int(value)) for value in rows[:, 0]) + "\n")
        return 10 * rows[:, 0]


def calls(file: Path) -> list[list[int]]:
    """Return the first features of each call's rows."""
    return [[int(value) for value in line.split()] for line in file.read_text().splitlines()]


def row(value: int) -> dict[str, Any]:
    """Return a request of one row."""
    data = np.array([value, 0], float).tolist()
    return {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 2], "data": data}]}
