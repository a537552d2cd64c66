"""The product on this machine with a tuned model: experiments, and trials of any spec of the same space."""

import asyncio
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from rig.objects import is_ready, manifest, until
from serving import clock
from serving.cli.demo.stack import Stack
from serving.kube import Kube
from serving.objects import Object
from serving.resources import kinds
from serving.resources.tuning.experiment import ProfilingExperimentSpec, Setting
from serving.resources.tuning.trial import FINISHED, TrialSpec, TrialStatus
from tuner import trial_record
from tuner.load.level_search import results
from tuner.search.problem import TrialObservation
from tuner.settings import DEFAULTS
from tuner.specs import rendering
from tuner.specs.space import Space

MODEL, SERVICE, GRID = "digits-forest", "digits", "grid"
POLL_SECONDS = 0.5
"""Rarely: every poll takes CPU time from the measurement."""


@dataclass(frozen=True)
class Search:
    """What an experiment came to."""

    name: str
    row: int | None
    trials: int
    seconds: float
    message: str


class TuningWorld:
    """One product that serves the model, and the space of its experiment."""

    def __init__(self, kube: Kube, stack: Stack, manifest: Object, model: Path) -> None:
        self._kube, self._stack, self._manifest, self._model = kube, stack, manifest, model
        self.spec = ProfilingExperimentSpec.model_validate(manifest["spec"])
        self.space = Space.of(self.spec)

    async def deploy(self) -> None:
        """Serve the model with resources that users choose without measurements."""
        version = {"modelName": SERVICE, "source": {"path": str(self._model)}}
        await self._kube.create(kinds.MODEL_VERSION, manifest(kinds.MODEL_VERSION, MODEL, version))
        resources = {"cpu": "1", "memory": "1Gi"}
        arm = {"name": self.spec.target.predictor, "modelVersion": MODEL, "resources": resources}
        inference = {"framework": "sklearn", "predictors": [arm]}
        await self._kube.create(kinds.INFERENCE, manifest(kinds.INFERENCE, SERVICE, inference))
        await until(self._kube, kinds.INFERENCE, SERVICE, is_ready)

    async def search(self, number: int) -> Search:
        """Run one experiment to its end."""
        name = f"{SERVICE}-{number}"
        spec = {**self._manifest["spec"], "warmStart": {"enabled": False}, "algorithm": {"seed": number}}
        await self._kube.create(kinds.PROFILING_EXPERIMENT, manifest(kinds.PROFILING_EXPERIMENT, name, spec))
        over = await until(
            self._kube, kinds.PROFILING_EXPERIMENT, name, _is_over, seconds=math.inf, poll=POLL_SECONDS
        )
        status = over["status"]
        recommendation = status.get("recommendation")
        settings = (
            [Setting.model_validate(setting) for setting in recommendation["settings"]]
            if recommendation
            else None
        )
        return Search(
            name,
            None if settings is None else self.space.index(settings),
            sum(status["trials"].get(key, 0) for key in ("succeeded", "failed")),
            status.get("spentSeconds", 0.0),
            recommendation["message"] if recommendation else str(status.get("conditions")),
        )

    async def measure(self, row: int, number: int) -> Object:
        """Measure one spec to its end; a trial whose load failed is made again."""
        while True:
            name = f"{GRID}-{number}-{row}-{clock.monotonic():.0f}"
            body = manifest(kinds.TRIAL, name, await self._trial(row, number))
            await self._kube.create(kinds.TRIAL, body)
            over = await until(self._kube, kinds.TRIAL, name, _is_over, seconds=math.inf, poll=POLL_SECONDS)
            if self._observation(over) is not None:
                return over

    async def read(self, row: int, status: Object) -> TrialObservation:
        """Return the observation of a Trial; a complete Trial is evaluated from its windows."""
        was = TrialStatus.model_validate(status)
        if was.reason == "Measured":
            state = results.state_of(self.spec.load, self.spec.constraints, was.windows, DEFAULTS.load)
            was = was.model_copy(update={"result": results.result(state)})
        trial = {
            "metadata": {"name": f"{GRID}-{row}"},
            "spec": await self._trial(row, 0),
            "status": was.model_dump(by_alias=True, exclude_none=True),
        }
        observation = self._observation(trial)
        assert observation is not None
        return observation

    def _observation(self, trial: Object) -> TrialObservation | None:
        return trial_record.read(trial, self.space, self.spec.objective, self.spec.constraints).observation

    async def _trial(self, row: int, number: int) -> Object:
        inference = await self._kube.get(kinds.INFERENCE, "default", SERVICE)
        version = await self._kube.get(kinds.MODEL_VERSION, "default", MODEL)
        settings = self.space.settings(row)
        tuned_target = rendering.tuned_target(self.spec.target, inference, {})
        rendered = rendering.pod(tuned_target, version, settings, self.spec.prices)
        spec = TrialSpec(
            experiment=GRID,
            number=1 + row,
            settings=list(settings),
            template=rendered.template,
            model_name=rendered.model_name,
            model_version=rendered.model_version,
            model_digest=rendered.model_digest,
            cost_per_hour=rendered.cost_per_hour,
            batch=rendered.batch,
            load=self.spec.load,
            constraints=list(self.spec.constraints),
            progress_deadline=self.spec.service_progress_deadline,
            seed=1000 * number + row,
        )
        return spec.model_dump(by_alias=True, exclude_none=True)

    async def page(self, search: Search, folder: Path) -> None:
        """Write a search's report, as its users get it."""
        for suffix in ("html", "json", "txt"):
            out = folder / f"{search.name}.{suffix}"
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "serving.app",
                "tune",
                "report",
                search.name,
                "--out",
                str(out),
                "--data-dir",
                str(self._stack.where.root),
                stdout=asyncio.subprocess.DEVNULL,
            )
            await process.wait()

    def named(self, row: int) -> str:
        """Return a spec in words."""
        return " ".join(f"{setting.name}={setting.value}" for setting in self.space.settings(row))


def _is_over(obj: Object) -> bool:
    return (obj.get("status") or {}).get("phase") in FINISHED
