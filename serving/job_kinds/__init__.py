"""The kinds of training jobs that an installation knows: of Slipway's manifests, and of its users'."""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

from serving import errors, manifest_files
from serving.planning.models.job_kind import JobKind, JobKinds
from serving.resources.job_kind import JobKindManifest
from serving.resources.kinds import OptionalKind


@cache
def shipped() -> JobKinds:
    """Return the kinds of Slipway's own manifests."""
    return _table(_shipped_manifests().values())


def known(folder: Path) -> JobKinds:
    """Return the kinds; a manifest of `folder` replaces the shipped one of its name.

    Raises:
        errors.UserError: a manifest is invalid, or two have one kind; the message has file, field, rule and
            value.
    """
    if not folder.is_dir():
        return shipped()
    return _table({**_shipped_manifests(), **manifest_files.read(folder.iterdir(), JobKindManifest)}.values())


@cache
def _shipped_manifests() -> dict[str, JobKindManifest]:
    return manifest_files.read(files(__package__).joinpath("manifests").iterdir(), JobKindManifest)


def _table(manifests: Iterable[JobKindManifest]) -> JobKinds:
    rows: dict[tuple[str, str], JobKind] = {}
    sources: dict[tuple[str, str], str] = {}
    for manifest in manifests:
        for kind, plural in manifest.kinds.items():
            key = (manifest.group, kind)
            if key in rows:
                raise errors.UserError(
                    f"{manifest.name}.yaml: kinds: {kind} of {manifest.group} is in {sources[key]}.yaml"
                    " already"
                )
            sources[key] = manifest.name
            api_kind = OptionalKind(manifest.group, tuple(manifest.versions), kind, plural)
            rows[key] = JobKind(api_kind, tuple(manifest.succeeded), tuple(manifest.failed), manifest.pods)
    return JobKinds(rows.values())
