"""Fits, pickles, loads and runs tiny models on import; imported before forks only, never in an ordinary
start.

scikit-learn caches signatures and thread pools at its first calls, which took 20 ms of the first prediction
of each fork. Starts no thread and leaves no files.
"""

import io

import joblib
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from serving.runtimes import threads


def _run_tiny_model() -> None:
    rows, labels = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), [0, 1, 0, 1]
    for model in (
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestClassifier(2),
        KNeighborsClassifier(2),
    ):
        file = io.BytesIO()
        joblib.dump(model.fit(rows, labels), file)
        file.seek(0)
        loaded = joblib.load(file)
        loaded.predict(rows)
        loaded.predict_proba(rows)


_run_tiny_model()
threads.loaded()  # inspects the loaded numeric libraries, once for all forks
