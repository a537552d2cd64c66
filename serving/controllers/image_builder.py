"""Makes a version's image, whatever its source: whole in the store, pinned, and pushed where its Model says so.

Every step is a no-op where it has been done before, so a build that was killed at any point can be repeated.
"""

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from serving import errors
from serving.controllers import storage_download
from serving.controllers.image_transfer import Registries, Say
from serving.controllers.job_output import Output, locate
from serving.data_dir import DataDir
from serving.images.capture.build import Built, capture
from serving.images.documents import output_manifest
from serving.images.store.model_store import ModelStore
from serving.kube import Kube
from serving.objects import Object
from serving.planning.models import version as planner
from serving.resources import kinds, names
from serving.resources.model import ModelSpec
from serving.settings import Settings

T = TypeVar("T")

_JOB_LABEL = "batch.kubernetes.io/job-name"
_FILE = "file://"


def owner(version: Mapping[str, Any]) -> str:
    """Return the name under which a ModelVersion pins its image."""
    return f"modelversion-{version['metadata']['uid']}"


class Maker:
    """One per process."""

    def __init__(self, kube: Kube, store: ModelStore, data: DataDir, settings: Settings) -> None:
        self._kube = kube
        self.store = store
        self._data = data
        self._registries = Registries(kube, store, settings.registry)
        self._builds = asyncio.Semaphore(settings.controllers.builds)
        self._transfers = asyncio.Semaphore(settings.controllers.transfers)
        self._moving: dict[str, asyncio.Task[Any]] = {}
        self._stopped: set[str] = set()

    async def make(self, version: Object, job: Object | None, model: Object, say: Say) -> Object:
        """Return the part of the status that says what was made.

        Args:
            version: the ModelVersion.
            job: its source, if that is a Job.
            model: by whose policy.
            say: told how far it is.

        Raises:
            errors.Permanent, errors.Temporary: with the reason for the status.
        """
        policy = ModelSpec.model_validate(model.get("spec") or {})
        source = version["spec"]["source"]
        if "image" in source:
            return await self._import(version, policy, source["image"], say)
        built = await self._build(version, job, policy, say)
        image = built.image
        if policy.registry is not None:
            say(f"pushing to {policy.registry.repository}")
            meta = version["metadata"]
            push = partial(self._registries.push, meta["namespace"], policy, built.digest, meta["name"], say)
            image = await self._transfer(version, push)
            await asyncio.to_thread(self.store.set_origin, built.digest, image)
        return planner.describe(
            image=image, digest=built.digest, size=built.size, framework=built.framework, metrics=built.metrics,
            files=[(file.path, file.digest, file.size) for file in built.files],
            origin=planner.lineage(version, job), source_revision=built.source_revision,
        )  # fmt: skip

    async def restore(self, version: Object, model: Object | None) -> None:
        """Bring the image of a ready version back from where it was pushed to or pulled from.

        Raises:
            errors.Permanent, errors.Temporary: as `make`; `ImageLost`, it was in this machine's store and nowhere else.
        """
        if version["status"]["image"].startswith(f"{names.LOCAL_REGISTRY}/"):
            raise errors.Permanent("ImageLost", "it was never pushed: make another version from its files")
        policy = ModelSpec.model_validate((model or {}).get("spec") or {})
        namespace, image = version["metadata"]["namespace"], version["status"]["image"]
        ours = "image" not in version["spec"]["source"]
        pull = partial(self._registries.pull, namespace, policy, image, ours=ours)
        digest = await self._transfer(version, pull)
        await self._pin(version, digest)

    def stop(self, version: Object) -> None:
        """Have what is fetched or pushed for a version that is being deleted end soon; what is being captured goes on."""
        uid = version["metadata"]["uid"]
        self._stopped.add(uid)
        if uid in self._moving:
            self._moving[uid].cancel()

    async def _transfer(self, version: Object, move: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Pull or push, unless and until the version is stopped."""
        uid = version["metadata"]["uid"]
        async with self._transfers:
            self._check(uid)
            task: asyncio.Task[T] = asyncio.create_task(move())
            self._moving[uid] = task
            try:
                await asyncio.wait({task})
                self._check(uid)
                return task.result()
            finally:
                task.cancel()
                del self._moving[uid]

    def _check(self, uid: str) -> None:
        if uid in self._stopped:
            raise errors.Temporary("Stopped", "stopped, as the version is being deleted")

    def forget(self, version: Object) -> None:
        """Remove what a version that is finished or goes has left outside the store; blocking."""
        self._stopped.discard(version["metadata"]["uid"])
        self._discard_download(version)

    def _discard_download(self, version: Object) -> None:
        shutil.rmtree(self._download(version), ignore_errors=True)

    async def _fetch(self, version: Object, uri: str, say: Say) -> Path:
        """Fetch from a storage. Its threads cannot be cancelled: what they report to stops them."""
        uid = version["metadata"]["uid"]

        def watched(words: str) -> None:
            self._check(uid)
            say(words)

        async with self._transfers:
            return await asyncio.to_thread(storage_download.fetch, uri, self._download(version), watched)

    async def _build(self, version: Object, job: Object | None, policy: ModelSpec, say: Say) -> Built:
        output = await self._output(version, job, say)
        say("the image is being built")
        async with self._builds:
            built = await asyncio.to_thread(self._capture, version, job, output, policy)
            await self._pin(version, built.digest)
        await asyncio.to_thread(self._discard_download, version)
        return built

    async def _pin(self, version: Object, digest: str) -> None:
        """Keep the image; an eviction may have been faster, and then all of it is done again."""
        try:
            await asyncio.to_thread(self.store.pin, digest, owner(version))
        except errors.Permanent as error:
            raise errors.Temporary(error.reason, str(error)) from error

    async def _output(self, version: Object, job: Object | None, say: Say) -> Output:
        if job is not None:
            return await self._job_output(job)
        source = version["spec"]["source"]
        if "uri" in source and not source["uri"].startswith(_FILE):
            path = await self._fetch(version, source["uri"], say)
        else:
            path = Path(source.get("path") or source["uri"].removeprefix(_FILE))
        return Output(path, path)

    async def _job_output(self, job: Object) -> Output:
        meta = job["metadata"]
        labels = f"{_JOB_LABEL}={meta['name']}"
        listing = await self._kube.list(kinds.POD, meta["namespace"], labels=labels)
        owned = [
            pod
            for pod in listing.items
            if any(o["uid"] == meta["uid"] for o in pod["metadata"].get("ownerReferences") or [])
        ]
        return locate(job, owned, self._data)

    def _capture(self, version: Object, job: Object | None, output: Output, policy: ModelSpec) -> Built:
        return capture(
            output.path,
            self.store,
            repository=planner.repository(version),
            lineage=planner.lineage(version, job),
            framework=version["spec"].get("framework", ""),
            within=output.volume if job is not None else None,
            compression=policy.compression,
        )

    async def _import(self, version: Object, policy: ModelSpec, image: str, say: Say) -> Object:
        say(f"pulling {image}")
        pull = partial(self._registries.pull, version["metadata"]["namespace"], policy, image)
        digest = await self._transfer(version, pull)
        await self._pin(version, digest)
        return await asyncio.to_thread(self._imported, version, image, digest)

    def _imported(self, version: Object, image: str, digest: str) -> Object:
        files = self.store.verify(digest)
        described = output_manifest.OutputManifest()
        if any(file.path == names.MANIFEST_FILE for file in files):
            described = output_manifest.parse(
                (self.store.tree(digest) / "models" / names.MANIFEST_FILE).read_bytes()
            )
        framework = _agreed(described.framework, version["spec"].get("framework", ""))
        named, at, _ = image.partition("@")
        origin = planner.lineage(version, None) | {"image": image if at else f"{named}@{digest}"}
        return planner.describe(
            image=f"{_without_tag(named)}@{digest}", digest=digest, size=sum(file.size for file in files),
            framework=framework, metrics=described.metrics,
            files=[(file.path, file.digest, file.size) for file in files],
            origin=origin, source_revision=described.source_revision,
        )  # fmt: skip

    def _download(self, version: Object) -> Path:
        return self._data.downloads / str(version["metadata"]["uid"])


def _without_tag(name: str) -> str:
    host, slash, repository = name.partition("/")
    return f"{host}{slash}{repository.partition(':')[0]}"


def _agreed(found: str, said: str) -> str:
    if found and said and found != said:
        raise errors.Permanent(
            "InvalidManifest",
            f"{names.MANIFEST_FILE}: framework: must be the ModelVersion's {said!r}, got {found!r}",
        )
    return found or said
