"""Directories as MLflow and huggingface_hub write them."""

from pathlib import Path

MLMODEL = """
artifact_path: model
flavors:
  python_function: {loader_module: mlflow.sklearn, model_path: model.pkl, python_version: 3.11.7}
  sklearn: {code: null, pickled_model: model.pkl, serialization_format: cloudpickle, sklearn_version: 1.5.0}
mlflow_version: 2.16.0
run_id: 0a1b2c3d4e5f60718293a4b5c6d7e8f9
signature:
  inputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 64]}}]'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "int64", "shape": [-1]}}]'
"""
RUN_ID = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"


def run_directory(tmp_path: Path, mlmodel: str = MLMODEL, pickle: str = "model.pkl") -> Path:
    run = tmp_path / "mlruns" / "0" / RUN_ID
    model = run / "artifacts" / "model"
    model.mkdir(parents=True)
    (run / "meta.yaml").write_text(f"run_id: {RUN_ID}\nstatus: 3\n")
    (model / "MLmodel").write_text(mlmodel)
    (model / pickle).write_bytes(b"pickle")
    (model / "conda.yaml").write_text("name: mlflow-env")
    metrics = {
        "accuracy": "1700000000000 0.9 0\n1700000001000 0.97 1\n",
        "val/loss (mean)": "1 0.25 0",
        "bad": "1 nan 0",
    }
    for name, text in metrics.items():
        (run / "metrics" / name).parent.mkdir(parents=True, exist_ok=True)
        (run / "metrics" / name).write_text(text)
    return run


def hugging_face(directory: Path) -> Path:
    directory.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (directory / name).write_text("{}")
    return directory


def cache(tmp_path: Path) -> Path:
    """Return a cache of huggingface_hub: snapshots are links into blobs."""
    root = tmp_path / "models--org--tiny"
    (root / "blobs").mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("abc123")
    snapshot = root / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    for number, name in enumerate(("config.json", "model.safetensors")):
        (root / "blobs" / str(number)).write_text(name)
        (snapshot / name).symlink_to(Path("../../blobs") / str(number))
    return root
