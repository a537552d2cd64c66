"""The scikit-learn runtime: `python -m serving.runtimes.sklearn.server`, one model, one process.

`serving.runtimes.process` documents its environment and life.
"""

import importlib
import sys
from typing import Any

from serving.runtimes import process
from serving.runtimes.loading import ModelFiles

PRELOAD = (
    *process.PRELOAD,
    "joblib.numpy_pickle_compat",
    "scipy.special",
    "serving.runtimes.sklearn.without_pandas",  # before anything of scikit-learn
    "serving.runtimes.sklearn.estimator",
    "serving.runtimes.sklearn.pickled",
    # Any estimator may be in a pickle, so every package that has some.
    "sklearn.calibration",
    "sklearn.cluster",
    "sklearn.compose",
    "sklearn.covariance",
    "sklearn.cross_decomposition",
    "sklearn.decomposition",
    "sklearn.discriminant_analysis",
    "sklearn.dummy",
    "sklearn.ensemble",
    "sklearn.feature_extraction.text",
    "sklearn.feature_selection",
    "sklearn.gaussian_process",
    "sklearn.impute",
    "sklearn.isotonic",
    "sklearn.kernel_approximation",
    "sklearn.kernel_ridge",
    "sklearn.linear_model",
    "sklearn.manifold",
    "sklearn.mixture",
    "sklearn.model_selection",
    "sklearn.multiclass",
    "sklearn.multioutput",
    "sklearn.naive_bayes",
    "sklearn.neighbors",
    "sklearn.neural_network",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "sklearn.random_projection",
    "sklearn.semi_supervised",
    "sklearn.svm",
    "sklearn.tree",
    "serving.runtimes.sklearn.warm_up",
)
"""Modules that are imported before forks, so that forks import none."""


def main() -> int:
    """Serve until SIGTERM; return the exit status."""
    files = ModelFiles(("model.joblib", "model.pkl"))  # an image has one of the two
    return process.main(process.Runtime("sklearn", files, _framework, process.tensor_application))


def _framework() -> process.Framework[Any]:
    # Imported here, as these modules import NumPy and scikit-learn. `without_pandas` comes first: it imports
    # scikit-learn so that it finds no pandas.
    importlib.import_module("serving.runtimes.sklearn.without_pandas")
    from serving.runtimes.sklearn import estimator, pickled  # noqa: PLC0415

    return process.Framework(load=pickled.estimator, warm=estimator.Estimator)


if __name__ == "__main__":
    sys.exit(main())
