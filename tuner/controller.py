"""The ProfilingExperiment controller: reads the caches, requests a plan, carries it out, reports.

A restart loses nothing: all measurements are in Trials, whose names follow from the experiment.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import NamedTuple

from serving import clock, engines, errors
from serving.data_dir import DataDir
from serving.kube import (
    EventRecorder,
    Key,
    Kube,
    Reconciler,
    Result,
    VersionReader,
    Watches,
    connect_eventually,
)
from serving.objects import Object, is_deleting, user_metadata
from serving.planning.gpu import mechanism as mechanisms
from serving.planning.models import volume as volumes
from serving.planning.models.version import blocked
from serving.planning.models.volume import AUTO, IMAGE, VolumeSource
from serving.resources import kinds
from serving.resources.engine import Engine
from serving.resources.kubernetes import conditions
from serving.resources.kubernetes.cluster_versions import ClusterVersions
from serving.resources.kubernetes.conditions import Condition
from serving.resources.tuning.experiment_status import is_over
from serving.resources.tuning.trial import FINISHED
from serving.settings import DEFAULTS as SERVING
from serving.settings import ControllerSettings, RuntimeImageSettings
from tuner.planning import earlier
from tuner.planning.exchange import ExperimentPlan, PlanRequest, RecordedExperiment
from tuner.search_worker import SearchWorker
from tuner.settings import DEFAULTS, TunerSettings

_RECOMMENDED = "Recommended"
"""The condition with the result of the search."""
_OWNER, _TARGET, _NAMESPACE = "owner", "target", "namespace"
"""Names of the indexes: Trials by the uid of their experiment; experiments by target and by namespace."""


class ExperimentController:
    """Watches ProfilingExperiments, their Trials and their targets."""

    def __init__(
        self,
        kube: Kube,
        watches: Watches,
        worker: SearchWorker,
        *,
        config: ControllerSettings,
        settings: TunerSettings,
        known_engines: Mapping[str, Engine] = MappingProxyType({}),
        images: RuntimeImageSettings = SERVING.runtime_images,
        volume: str = IMAGE.source,
    ) -> None:
        """Watch the objects; `volume` is the setting `models.volume`."""
        self._kube = kube
        self._volume = volume
        self._version_reader = VersionReader(kube)
        self._images = images
        self._engines = known_engines
        self._settings = settings
        self._worker = worker
        self._recorder = EventRecorder(kube, kube.field_manager)
        self._experiments = watches.of(kinds.PROFILING_EXPERIMENT)
        self._trials = watches.of(kinds.TRIAL)
        self._inferences = watches.of(kinds.INFERENCE)
        self._versions = watches.of(kinds.MODEL_VERSION)
        self._loop = Reconciler("experiment", self.reconcile, config)
        self._experiments.index(_TARGET, _target_keys)
        self._experiments.index(_NAMESPACE, lambda experiment: [experiment["metadata"]["namespace"]])
        self._experiments.on_change(self._experiment_changed)
        self._trials.index(_OWNER, _owner_uids)
        self._trials.on_change(self._trial_changed)
        self._inferences.on_change(self._inference_changed)
        self._versions.on_change(self._version_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        try:
            await self._loop.run(self._experiments, self._trials, self._inferences, self._versions)
        finally:
            self._worker.close()

    async def reconcile(self, key: Key) -> Result | None:
        """Advance one experiment by a step: request a plan from the search worker, and carry it out."""
        experiment = self._experiments.get(*key)
        if experiment is None or is_deleting(experiment) or is_over(experiment):
            return None
        reads_nodes = self._volume == AUTO or self._may_choose_gpu_mechanism(experiment)
        cluster = await self._version_reader.read() if reads_nodes else None
        choice = volumes.choose(self._volume, cluster)
        try:
            plan = await self._worker.plan(
                self._request(experiment, choice.source, cluster or ClusterVersions())
            )
        except errors.Temporary as error:
            await self._report_failure(experiment, error)
            raise
        current = self._experiments.get(*key)
        if current is None or _spec_version(current) != _spec_version(experiment):
            return None  # deleted, replaced or changed meanwhile: that change has a reconcile of its own
        await self._carry_out(experiment, plan)
        return None

    def _may_choose_gpu_mechanism(self, experiment: Object) -> bool:
        """Whether a spec may have a share of a GPU whose mechanism is chosen by the nodes."""
        spec = experiment["spec"]
        target = spec["target"]
        inference = self._inferences.get(experiment["metadata"]["namespace"], target.get("inference", ""))
        is_tuned = any(
            group["category"] == "resource" and parameter["name"].startswith("gpu.")
            for group in spec["tunableParameters"]
            for parameter in group["parameters"]
        )
        is_open = inference is not None and mechanisms.is_open_in(inference)
        return is_tuned or is_open or mechanisms.is_open(target.get("resources"))

    def _request(self, experiment: Object, volume: VolumeSource, cluster: ClusterVersions) -> PlanRequest:
        namespace = experiment["metadata"]["namespace"]
        target = experiment["spec"]["target"]
        inference = None
        version_names = [target["modelVersion"]] if "modelVersion" in target else []
        if "inference" in target:
            inference = self._inferences.get(namespace, target["inference"])
            version_names = [
                predictor["modelVersion"]
                for predictor in ((inference or {}).get("spec") or {}).get("predictors", [])
            ]
        versions = {name: self._versions.get(namespace, name) for name in version_names}
        others = self._experiments.by_index(_NAMESPACE, namespace)
        finished = earlier.candidates(experiment, others, self._settings.trials.earlier)
        return PlanRequest(
            recorded=self._recorded(experiment),
            inference=inference,
            model_versions={name: version for name, version in versions.items() if version is not None},
            earlier=[self._recorded(other) for other in finished],
            settings=self._settings,
            engines=self._engines,
            runtime_images=self._images,
            volume=volume,
            cluster=cluster,
        )

    async def _report_failure(self, experiment: Object, error: errors.Temporary) -> None:
        """Set the conditions of an experiment whose search failed and will be repeated."""
        status = experiment.get("status") or {}
        stored = status.get("conditions") or []
        failed = [Condition(name, "False", error.reason, str(error)) for name in (_RECOMMENDED, "Ready")]
        generation = _spec_version(experiment).generation
        merged = conditions.merge(stored, failed, generation=generation, now=clock.rfc3339(clock.now()))
        others = [condition for condition in stored if condition["type"] not in (_RECOMMENDED, "Ready")]
        body = {"phase": "Pending", **status, "conditions": [*others, *merged]}
        await self._kube.apply_status(kinds.PROFILING_EXPERIMENT, experiment, body)
        await self._recorder.emit(experiment, error.reason, str(error), "Warning")

    def _recorded(self, experiment: Object) -> RecordedExperiment:
        return RecordedExperiment(experiment, self._trials.by_index(_OWNER, experiment["metadata"]["uid"]))

    async def _carry_out(self, experiment: Object, plan: ExperimentPlan) -> None:
        """Write the objects of a plan, Trials first: a controller that is killed between repeats the rest."""
        for trial in plan.trials:
            await self._create(kinds.TRIAL, trial, experiment)
        if plan.profile is not None:
            await self._create(kinds.CAPACITY_PROFILE, plan.profile, None)
        if plan.status is not None:
            await self._kube.apply_status(kinds.PROFILING_EXPERIMENT, experiment, plan.status)
        for event in plan.events:
            await self._recorder.emit(experiment, event.reason, event.message, event.type)

    async def _create(self, kind: kinds.Kind, body: Object, owner: Object | None) -> None:
        """Create an object with a deterministic name: an existing object is the same one.

        Raises:
            errors.Temporary: `NameTaken`, by a Trial of a deleted experiment of this name.
        """
        try:
            await self._kube.create(kind, body)
        except errors.AlreadyExists as error:
            if owner is None:
                return
            meta = body["metadata"]
            existing = await self._kube.get(kind, meta["namespace"], meta["name"])
            if owner["metadata"]["uid"] not in _owner_uids(existing):
                raise errors.Temporary("NameTaken", str(error)) from error

    def _experiment_changed(self, before: Object | None, after: Object | None) -> None:
        """Reconcile if the spec or the metadata changed; this controller writes the status itself."""
        if before is None or after is None or user_metadata(before) != user_metadata(after):
            self._loop.add(Key.of(after or before or {}))

    def _trial_changed(self, before: Object | None, after: Object | None) -> None:
        """Reconcile the experiment if the Trial was created, finished or deleted: windows do not matter."""
        if before is not None and after is not None and _progress(before) == _progress(after):
            return
        meta = (after or before or {})["metadata"]
        for owner in meta.get("ownerReferences") or []:
            if owner.get("kind") == kinds.PROFILING_EXPERIMENT.kind:
                self._loop.add(Key(meta["namespace"], owner["name"]))

    def _inference_changed(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or _spec_version(before) != _spec_version(after):
            self._wake(Key.of(after or before or {}), "inference")

    def _version_changed(self, before: Object | None, after: Object | None) -> None:
        """Reconcile experiments that name the version, or whose Inference does; experiments are few."""
        if before is not None and after is not None and version_inputs(before) == version_inputs(after):
            return
        key = Key.of(after or before or {})
        self._wake(key, "modelVersion")
        for experiment in self._experiments.by_index(_NAMESPACE, key.namespace):
            inference = self._inferences.get(key.namespace, experiment["spec"]["target"].get("inference", ""))
            predictors = inference["spec"].get("predictors") or [] if inference is not None else []
            if any(predictor["modelVersion"] == key.name for predictor in predictors):
                self._loop.add(Key.of(experiment))

    def _wake(self, key: Key, field: str) -> None:
        """Reconcile the experiments whose `target.<field>` names this object."""
        for experiment in self._experiments.by_index(_TARGET, f"{field} {key}"):
            self._loop.add(Key.of(experiment))


def version_inputs(version: Object) -> tuple[str, str, str, str]:
    """Return the inputs of plans from a ModelVersion: uid, image, digest, and why it is blocked."""
    status = version.get("status") or {}
    return version["metadata"]["uid"], status.get("image", ""), status.get("digest", ""), blocked(version)


class _SpecVersion(NamedTuple):
    """Identifies one spec of one object, also if the object was deleted and created again."""

    uid: str
    generation: int


def _spec_version(obj: Object) -> _SpecVersion:
    return _SpecVersion(obj["metadata"]["uid"], obj["metadata"].get("generation", 1))


class _TrialProgress(NamedTuple):
    """The state of a Trial as far as plans depend on it."""

    final_phase: str
    """Empty while the Trial has not finished."""
    is_deleting: bool


def _progress(trial: Object) -> _TrialProgress:
    phase = (trial.get("status") or {}).get("phase", "")
    return _TrialProgress(phase if phase in FINISHED else "", is_deleting(trial))


def _target_keys(experiment: Object) -> Iterable[str]:
    """Return the keys of an experiment in the index of targets: `FIELD NAMESPACE/NAME`."""
    meta, target = experiment["metadata"], experiment["spec"]["target"]
    return [
        f"{field} {Key(meta['namespace'], target[field])}"
        for field in ("inference", "modelVersion")
        if field in target
    ]


def _owner_uids(obj: Object) -> list[str]:
    """Return the uids of all owners, also of those that do not control the object."""
    return [owner["uid"] for owner in obj["metadata"].get("ownerReferences") or []]


@asynccontextmanager
async def prepared(
    data_dir: DataDir,
    config: ControllerSettings,
    watches: Watches,
    settings: TunerSettings = DEFAULTS,
    *,
    images: RuntimeImageSettings = SERVING.runtime_images,
    volume: str = SERVING.models.volume,
) -> AsyncIterator[ExperimentController]:
    """Yield a controller with a client of its own; its `run` reconciles once `watches` have their objects."""
    async with await connect_eventually(data_dir.kubeconfig, component="experiment") as kube:
        worker = SearchWorker(settings.trials.idle_seconds)
        yield ExperimentController(
            kube,
            watches,
            worker,
            config=config,
            settings=settings,
            known_engines=engines.known(data_dir.engines),
            images=images,
            volume=volume,
        )
