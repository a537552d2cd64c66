"""Recognises directories of other tools: MLflow runs and models, Hugging Face directories, plain files.

Only reads: nothing is changed or unpickled, and neither MLflow nor huggingface_hub is needed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving import errors
from serving.cli.model import mlflow

HF_CONFIG = "config.json"
_HF_FILES = ("*.safetensors", "pytorch_model*.bin", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class ForeignModel:
    """A directory to import."""

    kind: str
    """For people: `MLflow run`, `Hugging Face directory`, `directory`."""
    root: Path
    """The directory of the files."""
    links_within: Path | None = None
    """Links in `root` may lead to files below this directory, which are copied; None: links are refused."""
    framework: str = ""
    """Empty where it is unknown."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    revision: str = ""
    """The id of the MLflow run, or of the Hugging Face snapshot; empty without one."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Name in the image, by path in `root`, of files that the runtimes know under another name."""
    inputs: tuple[Mapping[str, object], ...] = ()
    """Input tensors, at most one: `inputs` of slipway.json."""


def recognise(directory: Path) -> ForeignModel:
    """Return the model in a directory.

    Raises:
        errors.UserError: not a directory, or it has several models; the message lists them.
    """
    path = directory.expanduser().absolute()
    if not path.is_dir():
        raise errors.UserError(f"{directory}: not a directory")
    if model := mlflow.model_of(path):
        return _mlflow(model)
    if cached := _cached(path):
        return cached
    if (path / HF_CONFIG).is_file() and any(any(path.glob(pattern)) for pattern in _HF_FILES):
        return _hugging_face(path, blobs=None, revision="")
    return ForeignModel("directory", path)


def _mlflow(model: Path) -> ForeignModel:
    about = mlflow.describe(model)
    return ForeignModel(
        kind="MLflow run" if about.run_id else "MLflow model",
        root=model,
        framework=about.framework,
        metrics=about.metrics,
        revision=about.run_id,
        renamed=about.renamed,
        inputs=about.inputs,
    )


def _cached(path: Path) -> ForeignModel | None:
    """Return the model if `path` is a model in huggingface_hub's cache, or one of its snapshots; else None.

    The model is a directory `models--...`, a snapshot its `snapshots/REVISION`, with links into `blobs`.
    https://huggingface.co/docs/huggingface_hub/guides/manage-cache
    """
    for cache in (path, path.parent.parent):
        if (cache / "snapshots").is_dir() and (cache / "blobs").is_dir():
            snapshot = path if path.parent == cache / "snapshots" else _snapshot(cache)
            return _hugging_face(snapshot, blobs=cache / "blobs", revision=snapshot.name)
    return None


def _snapshot(cache: Path) -> Path:
    """Return the snapshot of the branch `main`, else the only one."""
    snapshots = sorted(path for path in (cache / "snapshots").iterdir() if path.is_dir())
    main = cache / "refs" / "main"
    if main.is_file():
        revision = main.read_text(errors="replace").strip()
        for path in snapshots:
            if path.name == revision:
                return path
    if len(snapshots) != 1:
        listed = "".join(f"\n  {path}" for path in snapshots) or " none"
        raise errors.UserError(f"{cache}: has {len(snapshots)} snapshots, name one:{listed}")
    return snapshots[0]


def _hugging_face(root: Path, *, blobs: Path | None, revision: str) -> ForeignModel:
    framework = "transformers" if (root / HF_CONFIG).is_file() else "pytorch"
    return ForeignModel(
        "Hugging Face directory", root, links_within=blobs, framework=framework, revision=revision
    )


def files(model: ForeignModel) -> Iterator[tuple[Path, str]]:
    """Yield each file to read, with its name in the image.

    Raises:
        errors.UserError: a link to a file outside, or an entry that is neither a file nor a directory.
    """
    for path in sorted(_walk(model.root)):
        name = str(path.relative_to(model.root))
        if path.is_symlink():
            yield _target(path, model), model.renamed.get(name, name)
        elif path.is_file():
            yield path, model.renamed.get(name, name)
        else:
            raise errors.UserError(f"{path}: is neither a file nor a directory")


def _walk(root: Path) -> Iterator[Path]:
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _target(link: Path, model: ForeignModel) -> Path:
    if model.links_within is None:
        raise errors.UserError(
            f"{link}: is a link. Copy the files (`cp -rL`), or name the cache directory `models--...` itself"
        )
    target = link.resolve()
    if not target.is_file() or not target.is_relative_to(model.links_within.resolve()):
        raise errors.UserError(f"{link}: leads out of {model.links_within}, or to nothing")
    return target
