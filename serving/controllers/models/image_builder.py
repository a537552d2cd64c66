"""Builds or imports the image of a ModelVersion, pins it, and pushes it if its Model has a registry.

Every step is idempotent, so a build that was killed at any point can be repeated.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from serving import errors
from serving.controllers.models import job_pods, storage_download
from serving.controllers.models.image_transfer import ImageTransfer, ReportProgress
from serving.controllers.models.output_directory import OutputDirectory, locate
from serving.data_dir import DataDir
from serving.images.building.model_image import Built, build_image
from serving.images.documents import layers, oci, output_manifest
from serving.images.documents.signing import PublicKey
from serving.images.file_formats import model_tree
from serving.images.store.model_store import ModelStore
from serving.kube import Kube
from serving.objects import Object
from serving.planning.models import version as planner
from serving.planning.models.job_kind import TrainingJob
from serving.resources import names
from serving.resources.model import ModelSpec
from serving.settings import Settings
from serving.system.isolation.user_ids import SYSTEM_USER

T = TypeVar("T")

FILE = "file://"
"""Begins URIs of this machine's files."""


def pin_owner(version: Mapping[str, Any]) -> str:
    """Return the owner of a ModelVersion's pin on its image."""
    return f"modelversion-{version['metadata']['uid']}"


class _Source(NamedTuple):
    """The directory to build an image of, with the arguments of `build_image` that restrict its reading.

    Users choose the path, and the controllers may read more than these users.
    """

    path: Path
    trusted_root: Path | None = None
    """No component of `path` below this directory may be a link; None checks the last component only."""
    reader_uid: int | None = None
    """Id of the user who must be able to read all files; None for no user."""
    data_dir: Path | None = None
    """The data directory; `path` must neither contain it nor be in it. None for none."""


class ImageBuilder:
    """One per process."""

    def __init__(self, kube: Kube, store: ModelStore, data: DataDir, settings: Settings) -> None:
        self._kube = kube
        self.store = store
        self._data = data
        self._images = ImageTransfer(kube, store, settings.registry)
        self._builds = asyncio.Semaphore(settings.controllers.builds)
        self._transferring: dict[str, asyncio.Task[Any]] = {}
        self._stopped: set[str] = set()

    async def build(
        self,
        version: Object,
        job: TrainingJob | None,
        model: Object,
        trusted: Mapping[str, PublicKey],
        report: ReportProgress,
        *,
        captured: str = "",
    ) -> Object:
        """Build the image; returns the part of the status that describes it.

        Args:
            version: the ModelVersion.
            job: the version's source, if that is a training job.
            model: the version's Model, whose spec has the registry and the keys.
            trusted: public keys of the model policies by fingerprint; the status names those that have signed
                the image.
            report: takes messages about progress.
            captured: reference of the image of the job's output, with its digest, if a Pod has pushed the
                image to the Model's registry; else empty.

        Raises:
            errors.Permanent, errors.Temporary: with a reason for the status.
        """
        model_spec = ModelSpec.model_validate(model.get("spec") or {})
        source = version["spec"]["source"]
        if "image" in source:
            return await self._import(version, model_spec, source["image"], trusted, report)
        if captured:
            return await self._import_captured(
                version, job, model_spec, captured, trusted=trusted, report=report
            )
        built = await self._build(version, job, model_spec, report)
        image = built.image
        if model_spec.registry is not None:
            image = await self._push(version, model_spec, built.digest, report)
        return planner.describe(
            image=image,
            digest=built.digest,
            size=built.size,
            framework=built.framework,
            metrics=built.metrics,
            files=[(file.path, file.digest, file.size) for file in built.files],
            origin=planner.lineage(version, job and job.object),
            source_revision=built.source_revision,
            examined=await self._examined(
                version, model_spec, image, [file.path for file in built.files], trusted
            ),
        )

    async def _push(self, version: Object, model_spec: ModelSpec, digest: str, report: ReportProgress) -> str:
        """Push a stored image with its signature and tags; return its name by digest."""
        assert model_spec.registry is not None
        report(f"pushing to {model_spec.registry.repository}")
        namespace = version["metadata"]["namespace"]
        push = partial(self._images.push, namespace, model_spec, digest, planner.tag(version), report)
        image = await self._transfer(version, push)
        await asyncio.to_thread(self.store.set_origin, digest, image)
        return image

    async def examine(
        self, version: Object, model: Object | None, trusted: Mapping[str, PublicKey]
    ) -> Object:
        """Return the part of the status that an examination of a built image adds, from `planner.examined`.

        Files are searched for code only once, as they never change; signatures are searched each time. The
        search for code pins the image, and first fetches an image that the store lacks.

        Raises:
            errors.Permanent, errors.Temporary: as `build` and `restore`.
        """
        model_spec, status = ModelSpec.model_validate((model or {}).get("spec") or {}), version["status"]
        image = status["image"]
        if "contents" in status:
            namespace = version["metadata"]["namespace"]
            return {"signedBy": sorted(await self._images.signers(namespace, model_spec, image, trusted))}
        try:
            await self._pin(version, status["digest"])
        except errors.Temporary as error:
            if error.reason != "ImageMissing":
                raise
            await self.restore(version, model)
        paths = [file["path"] for file in status.get("files") or []]
        return await self._examined(version, model_spec, image, paths, trusted)

    async def _examined(
        self,
        version: Object,
        model_spec: ModelSpec,
        image: str,
        paths: Iterable[str],
        trusted: Mapping[str, PublicKey],
    ) -> Object:
        """Find the files with code and the signers of a stored image; `paths` are those of its files."""
        tree = self.store.tree(image.rpartition("@")[2]) / layers.ROOT
        code = await asyncio.to_thread(model_tree.with_code, tree, paths)
        signers = await self._images.signers(version["metadata"]["namespace"], model_spec, image, trusted)
        return planner.examined({path: detected.name for path, detected in code.items()}, signers)

    async def restore(self, version: Object, model: Object | None) -> None:
        """Fetch the image of a built version again, from the registry that it was pushed to or pulled from.

        Raises:
            errors.Permanent, errors.Temporary: as `build`; `ImageLost`, it was only in this machine's store.
        """
        if version["status"]["image"].startswith(f"{names.LOCAL_REGISTRY}/"):
            raise errors.Permanent("ImageLost", "it was never pushed: create another version from its files")
        model_spec = ModelSpec.model_validate((model or {}).get("spec") or {})
        namespace, image = version["metadata"]["namespace"], version["status"]["image"]
        built_here = "image" not in version["spec"]["source"]
        pull = partial(self._images.pull, namespace, model_spec, image, built_here=built_here)
        digest = await self._transfer(version, pull)
        await self._pin(version, digest)

    def stop(self, version: Object) -> None:
        """End transfers for a version that is being deleted; a build from files in progress continues."""
        uid = version["metadata"]["uid"]
        self._stopped.add(uid)
        if uid in self._transferring:
            self._transferring[uid].cancel()

    async def _transfer(self, version: Object, transfer: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a pull or push until it is done or the version is stopped."""
        uid = version["metadata"]["uid"]
        self._raise_if_stopped(uid)
        task: asyncio.Task[T] = asyncio.create_task(transfer())
        self._transferring[uid] = task
        try:
            await asyncio.wait({task})  # returns without an exception when `stop` cancels the task
            self._raise_if_stopped(uid)
            return task.result()
        finally:
            task.cancel()
            del self._transferring[uid]

    def _raise_if_stopped(self, uid: str) -> None:
        if uid in self._stopped:
            raise errors.Temporary("Stopped", "stopped, as the version is being deleted")

    def forget(self, version: Object) -> None:
        """Remove the files of a finished or deleted version outside the store; blocking."""
        self._stopped.discard(version["metadata"]["uid"])
        self._discard_download(version)

    def _discard_download(self, version: Object) -> None:
        shutil.rmtree(self._download_dir(version), ignore_errors=True)

    async def _fetch(self, version: Object, uri: str, report: ReportProgress) -> Path:
        """Download from a storage. Threads cannot be cancelled: the progress callback ends the download."""
        uid = version["metadata"]["uid"]

        def report_or_stop(message: str) -> None:
            self._raise_if_stopped(uid)
            report(message)

        return await asyncio.to_thread(
            storage_download.fetch, uri, self._download_dir(version), report_or_stop
        )

    async def _build(
        self, version: Object, job: TrainingJob | None, model_spec: ModelSpec, report: ReportProgress
    ) -> Built:
        source = await self._source(version, job, report)
        report("the image is being built")
        async with self._builds:
            built = await asyncio.to_thread(self._build_from, source, version, job, model_spec)
            await self._pin(version, built.digest)
        await asyncio.to_thread(self._discard_download, version)
        return built

    async def _pin(self, version: Object, digest: str) -> None:
        """Pin the image. If the image has been evicted meanwhile, a Temporary error repeats the build."""
        try:
            await asyncio.to_thread(self.store.pin, digest, pin_owner(version))
        except errors.Permanent as error:
            raise errors.Temporary(error.reason, str(error)) from error

    async def _source(self, version: Object, job: TrainingJob | None, report: ReportProgress) -> _Source:
        """Return the directory of the version's files, after a download if the source is a storage."""
        if job is not None:
            output = await self._job_output(job)
            # An emptyDir of the Pod lies in the data directory; a hostPath must not expose that directory.
            is_of_pod = output.volume.is_relative_to(self._data.pods / output.pod_uid)
            reader_uid = await asyncio.to_thread(self._user_of, output.pod_uid)
            return _Source(output.path, output.volume, reader_uid, None if is_of_pod else self._data.root)
        source = version["spec"]["source"]
        if "uri" in source and not source["uri"].startswith(FILE):
            return _Source(await self._fetch(version, source["uri"], report))
        path = Path(source.get("path") or source["uri"].removeprefix(FILE))
        meta = version["metadata"]
        # The copy that `slipway model import` made for this version lies in the data directory.
        copy = self._data.imports / meta["namespace"] / meta["name"]
        is_copy = await asyncio.to_thread(lambda: path.resolve() == copy.resolve())
        return _Source(path, data_dir=None if is_copy else self._data.root)

    def _user_of(self, pod_uid: str) -> int | None:
        """Return the id of the Pod's user, whose files this process reads as root; None if it is not root."""
        if os.geteuid() != 0:
            return None
        try:
            user: int | None = orjson.loads(self._data.pod_record(pod_uid).read_bytes())["user"]
        except (FileNotFoundError, KeyError, ValueError):
            return SYSTEM_USER  # an unknown user may read what everybody may
        return user

    async def _job_output(self, job: TrainingJob) -> OutputDirectory:
        return locate(job.object, await job_pods.with_output(self._kube, job), self._data)

    def _build_from(
        self, source: _Source, version: Object, job: TrainingJob | None, model_spec: ModelSpec
    ) -> Built:
        try:
            return build_image(
                source.path,
                self.store,
                repository=planner.repository(version),
                lineage=planner.lineage(version, job and job.object),
                framework=version["spec"].get("framework", ""),
                trusted_root=source.trusted_root,
                reader_uid=source.reader_uid,
                data_dir=source.data_dir,
                compression=model_spec.compression,
            )
        except PermissionError as error:  # only root reads everything
            raise errors.Temporary(
                "OutputNotReadable",
                f"{source.path}: must be readable for user {os.geteuid()} of the controllers, got "
                f"{error.filename}: {error.strerror}",
            ) from error
        except OSError as error:  # such as EIO of a disk, or ESTALE of a network's storage
            raise errors.Temporary(
                "OutputNotReadable", f"{source.path}: cannot be read, or its image not be stored: {error}"
            ) from error

    async def _import(
        self,
        version: Object,
        model_spec: ModelSpec,
        image: str,
        trusted: Mapping[str, PublicKey],
        report: ReportProgress,
    ) -> Object:
        """Pull the image that the spec names by a tag or a digest."""
        report(f"pulling {image}")
        pull = partial(self._images.pull, version["metadata"]["namespace"], model_spec, image)
        digest = await self._transfer(version, pull)
        await self._pin(version, digest)
        name, at, _ = image.partition("@")
        by_digest = f"{_without_tag(name)}@{digest}"
        # The lineage keeps the tag that the user named, with the digest that the tag had at this time.
        origin = planner.lineage(version, None) | {"image": image if at else f"{name}@{digest}"}
        return await self._describe_pulled(version, model_spec, by_digest, origin, trusted)

    async def _import_captured(
        self,
        version: Object,
        job: TrainingJob | None,
        model_spec: ModelSpec,
        image: str,
        *,
        trusted: Mapping[str, PublicKey],
        report: ReportProgress,
    ) -> Object:
        """Pull and verify an image that a capture has pushed; only then sign it, and name it by a tag."""
        report(f"verifying {image}")
        pull = partial(
            self._images.pull, version["metadata"]["namespace"], model_spec, image, built_here=True
        )
        digest = await self._transfer(version, pull)
        await self._pin(version, digest)
        pushed = await self._push(version, model_spec, digest, report)
        origin = planner.lineage(version, job and job.object)
        return await self._describe_pulled(version, model_spec, pushed, origin, trusted)

    async def _describe_pulled(
        self,
        version: Object,
        model_spec: ModelSpec,
        image: str,
        origin: Mapping[str, str],
        trusted: Mapping[str, PublicKey],
    ) -> Object:
        """Verify a pulled image (`NAME@DIGEST`) in the store, and return the status that describes it."""
        digest = image.rpartition("@")[2]
        files = await asyncio.to_thread(self.store.verify, digest)
        examined = await self._examined(version, model_spec, image, [file.path for file in files], trusted)
        output = await asyncio.to_thread(self._output_manifest, digest, files)
        return planner.describe(
            image=image,
            digest=digest,
            size=sum(file.size for file in files),
            framework=_agreed(output.framework, version["spec"].get("framework", "")),
            metrics=output.metrics,
            files=[(file.path, file.digest, file.size) for file in files],
            origin=origin,
            source_revision=output.source_revision,
            examined=examined,
        )

    def _output_manifest(self, digest: str, files: Sequence[oci.File]) -> output_manifest.OutputManifest:
        """Return the content of the image's `slipway.json`; defaults if the image has no such file."""
        if all(file.path != names.MANIFEST_FILE for file in files):
            return output_manifest.OutputManifest()
        path = self.store.tree(digest) / layers.ROOT / names.MANIFEST_FILE
        return output_manifest.parse(path.read_bytes())

    def _download_dir(self, version: Object) -> Path:
        return self._data.downloads / str(version["metadata"]["uid"])


def _without_tag(name: str) -> str:
    host, slash, repository = name.partition("/")
    return f"{host}{slash}{repository.partition(':')[0]}"


def _agreed(in_manifest: str, in_spec: str) -> str:
    if in_manifest and in_spec and in_manifest != in_spec:
        raise errors.Permanent(
            "InvalidManifest",
            f"{names.MANIFEST_FILE}: framework: must be the ModelVersion's {in_spec!r}, got {in_manifest!r}",
        )
    return in_manifest or in_spec
