"""A real search against the truth: every spec of manifests/samples/tuning.yaml measured three times on this machine, and searched.

The whole product runs (`slipway up`). A round measures each of the 96 specs once, in a random order, by Trials as an experiment makes them,
but each to its end; before each round an experiment searches the space from nothing, with a seed of its own. So grid and searches see the
same minutes of the machine. Load generator and replica have cores of their own, as always.

The truth of a spec is the mean of its measurements (of logarithms). How sure a mean is follows from all specs together, as three measurements
of one say little of their spread. A search is right if the mean of what it recommends is within the 95 % interval of the best mean.
"""

import argparse
import asyncio
import contextlib
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(
    0, str(ROOT)
)  # before this file's own directory, in which benchmarks/tuner.py has the package's name

import numpy as np  # noqa: E402
import orjson  # noqa: E402
import yaml  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import Progress  # noqa: E402
from rich.table import Table  # noqa: E402
from rig import cold_models  # noqa: E402
from rig.harness import SEED, Bar, report  # noqa: E402
from scipy.stats import t as student  # noqa: E402

from serving import clock  # noqa: E402
from serving.cli.demo_stack import Stack  # noqa: E402
from serving.data_dir import DataDir  # noqa: E402
from serving.kube import Kube, connect  # noqa: E402
from serving.resources import conditions, kinds  # noqa: E402
from serving.resources.experiment import ProfilingExperimentSpec, Setting  # noqa: E402
from serving.resources.trial import TrialSpec  # noqa: E402
from tuner import outcome, rendering  # noqa: E402
from tuner.search.problem import Observation  # noqa: E402
from tuner.space import Space  # noqa: E402

MODEL, SERVICE, GRID = "digits-forest", "digits", "grid"
POLL_SECONDS = 0.5
READY_SECONDS = 180.0
MOST_TRIALS = 20
OVER = ("Succeeded", "Failed")

Object = dict[str, Any]


@dataclass(frozen=True)
class Search:
    """What an experiment came to."""

    name: str
    row: int | None
    trials: int
    seconds: float
    message: str


@dataclass(frozen=True)
class Truth:
    """What each of the n specs does, from all rounds."""

    mean: np.ndarray
    """(n,): of log objective; -inf where the spec failed or does not meet the constraints on average."""
    margins: np.ndarray
    """(n,): mean of the worst margin; inf where the spec failed."""
    reach: float
    """Half of the 95 % interval of a mean."""

    @property
    def best(self) -> int:
        """Row of the best mean."""
        return int(np.argmax(self.mean))

    def ratio(self, row: int | None) -> float:
        """Return the mean of a spec over the best."""
        return 0.0 if row is None else float(np.exp(self.mean[row] - self.mean[self.best]))

    def within(self, row: int | None) -> bool:
        """Whether a spec's mean lies in the interval of the best."""
        return row is not None and bool(self.mean[row] >= self.mean[self.best] - self.reach)


def truth(rounds: Sequence[Sequence[Observation]]) -> Truth:
    """Return what each spec does.

    Args:
        rounds: of each, an observation of every spec, in the order of the space.
    """
    by_spec = list(zip(*rounds, strict=True))
    ran = np.array([all(seen.boots for seen in of) for of in by_spec])
    values = np.array([[seen.log_objective or 0.0 for seen in of] for of in by_spec])
    margins = np.array([np.mean([max(s.margins) if s.boots else math.inf for s in of]) for of in by_spec])
    meets = np.array([ran[i] and not np.any(np.mean([s.margins for s in of], axis=0) > 0) if ran[i] else False
                      for i, of in enumerate(by_spec)])  # fmt: skip
    pooled = float(np.sqrt(values[meets].var(axis=1, ddof=1).mean())) if len(rounds) > 1 else math.nan
    freedom = max(1, int(meets.sum()) * (len(rounds) - 1))
    reach = float(student.ppf(0.975, freedom)) * pooled / math.sqrt(len(rounds))
    return Truth(np.where(meets, values.mean(axis=1), -np.inf), margins, reach)


class World:
    """One product that serves the model, and the space of its experiment."""

    def __init__(self, kube: Kube, stack: Stack, manifest: Object, model: Path) -> None:
        self._kube, self._stack, self._manifest, self._model = kube, stack, manifest, model
        self.spec = ProfilingExperimentSpec.model_validate(manifest["spec"])
        self.space = Space.of(self.spec)

    async def deploy(self) -> None:
        """Serve the model with what users give who do not measure."""
        version = {"modelName": SERVICE, "source": {"path": str(self._model)}}
        await self._kube.create(kinds.MODEL_VERSION, _object(kinds.MODEL_VERSION, MODEL, version))
        resources = {"cpu": "1", "memory": "1Gi"}
        arm = {"name": self.spec.target.predictor, "modelVersion": MODEL, "resources": resources}
        inference = {"framework": "sklearn", "predictors": [arm]}
        await self._kube.create(kinds.INFERENCE, _object(kinds.INFERENCE, SERVICE, inference))
        await self._until(kinds.INFERENCE, SERVICE, lambda found: conditions.is_true(found, "Ready"))

    async def search(self, number: int) -> Search:
        """Run one experiment to its end."""
        name = f"{SERVICE}-{number}"
        spec = {**self._manifest["spec"], "warmStart": {"enabled": False}, "algorithm": {"seed": number}}
        await self._kube.create(kinds.PROFILING_EXPERIMENT, _object(kinds.PROFILING_EXPERIMENT, name, spec))
        over = await self._until(kinds.PROFILING_EXPERIMENT, name, _is_over, seconds=math.inf)
        status = over["status"]
        found = status.get("recommendation")
        settings = [Setting.model_validate(one) for one in found["settings"]] if found else None
        return Search(
            name,
            None if settings is None else self.space.index(settings),
            sum(status["trials"].get(key, 0) for key in ("succeeded", "failed")),
            round(status.get("spentSeconds", 0.0), 1),
            found["message"] if found else str(status.get("conditions")),
        )

    async def measure(self, row: int, number: int) -> tuple[Observation, Object]:
        """Measure one spec to its end; a trial whose load failed is made again."""
        while True:
            name = f"{GRID}-{number}-{row}-{clock.monotonic():.0f}"
            body = _object(kinds.TRIAL, name, await self._trial(row, number))
            await self._kube.create(kinds.TRIAL, body)
            over = await self._until(kinds.TRIAL, name, _is_over, seconds=math.inf)
            found = outcome.observation(over, self.space, self.spec.objective, self.spec.constraints)
            if found is not None:
                return found, over

    async def _trial(self, row: int, number: int) -> Object:
        inference = await self._kube.get(kinds.INFERENCE, "default", SERVICE)
        version = await self._kube.get(kinds.MODEL_VERSION, "default", MODEL)
        settings = self.space.settings(row)
        source = rendering.source(self.spec.target, inference)
        rendered = rendering.pod(source, version, settings, self.spec.prices)
        spec = TrialSpec(
            experiment=GRID, number=1 + row, settings=list(settings), template=rendered.template,
            model_name=rendered.model_name, model_version=rendered.model_version, model_digest=rendered.model_digest,
            cost_per_hour=rendered.cost_per_hour, batch=rendered.batch, load=self.spec.load,
            constraints=list(self.spec.constraints), progress_deadline=self.spec.service_progress_deadline,
            seed=1000 * number + row,
        )  # fmt: skip
        return spec.model_dump(by_alias=True, exclude_none=True)

    async def page(self, search: Search, folder: Path) -> None:
        """Write a search's report, as its users get it."""
        for suffix in ("html", "json", "txt"):
            out = folder / f"{search.name}.{suffix}"
            told = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "serving.app", "tune", "report", search.name, "--out", str(out),
                "--data-dir", str(self._stack.where.root), stdout=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            await told.wait()

    async def _until(self, kind: kinds.Kind, name: str, holds: Any, seconds: float = READY_SECONDS) -> Object:
        deadline = clock.monotonic() + seconds
        while not holds(found := await self._kube.get(kind, "default", name)):
            if clock.monotonic() > deadline:
                raise RuntimeError(f"{kind.kind} {name}: {found.get('status')}")
            await asyncio.sleep(POLL_SECONDS)
        return found


def _is_over(obj: Object) -> bool:
    return (obj.get("status") or {}).get("phase") in OVER


def _object(kind: kinds.Kind, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


async def play(
    world: World, rounds: int, rows: Sequence[int], folder: Path | None
) -> tuple[list[list[Observation]], list[Search]]:
    """Search, measure everything, and again; what was measured is kept as lines of JSON in the folder."""
    found: list[list[Observation]] = []
    searches: list[Search] = []
    draw = random.Random(SEED)
    with Progress(console=Console(stderr=True, width=110)) as progress:
        for number in range(rounds):
            task = progress.add_task(f"search {number + 1}", total=1)
            searches.append(await world.search(number))
            progress.update(task, completed=1)
            if folder is not None:
                await world.page(searches[-1], folder)
            seen: dict[int, Observation] = {}
            for row in progress.track(draw.sample(rows, len(rows)), description=f"round {number + 1}"):
                seen[row], trial = await world.measure(row, number)
                if folder is not None:
                    with (folder / "grid.jsonl").open("ab") as file:
                        file.write(orjson.dumps({"round": number, "row": row, **_kept(trial)}) + b"\n")
            found.append([seen[row] for row in rows])
    return found, searches


def _kept(trial: Object) -> Object:
    status = trial["status"]
    settings = {one["name"]: one["value"] for one in trial["spec"]["settings"]}
    names = ("reason", "message", "result", "notes", "seconds", "startSeconds")
    return {"settings": settings, **{name: status.get(name) for name in names}}


def show(
    world: World, found: Truth, searches: Sequence[Search], rounds: Sequence[Sequence[Observation]]
) -> None:
    """Print the ten best specs, and who recommended which."""
    console = Console(stderr=True, width=140)
    table = Table(title="The best specs, over all rounds", title_justify="left", box=None)
    for column in ("spec", "of the best", "rounds", "worst margin", "recommended by"):
        table.add_column(column)
    order = [int(row) for row in np.argsort(-found.mean, kind="stable")[:10]]
    for row in [*order, *(one.row for one in searches if one.row is not None and one.row not in order)]:
        each = [math.exp((seen[row].log_objective or -math.inf) - found.mean[found.best]) for seen in rounds]
        table.add_row(
            _named(world, row), f"{found.ratio(row):.3f}", " ".join(f"{value:.3f}" for value in each),
            f"{found.margins[row]:+.2f}", " ".join(one.name for one in searches if one.row == row),
        )  # fmt: skip
    console.print(table)


def _named(world: World, row: int) -> str:
    return " ".join(f"{one.name}={one.value}" for one in world.space.settings(row))


def _bars(found: Truth, searches: Sequence[Search]) -> list[Bar]:
    least = round(math.exp(-found.reach), 4)
    bars = []
    for one in searches:
        ratio = round(found.ratio(one.row), 4)
        bars.append(
            Bar(
                f"{one.name}: of the best, whose interval begins at the bar",
                ratio,
                least,
                found.within(one.row),
            )
        )
        bars.append(Bar(f"{one.name}: trials", one.trials, MOST_TRIALS, one.trials <= MOST_TRIALS))
    return bars


def _folder(text: str) -> Path:
    path = Path(text).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


async def main(options: argparse.Namespace) -> None:
    """Measure, and report."""
    manifest = yaml.safe_load((ROOT / "manifests/samples/tuning.yaml").read_text())
    manifest["spec"]["load"] = {"windowSeconds": options.window, "warmupSeconds": 1}
    async with contextlib.AsyncExitStack() as exits:
        folder = exits.enter_context(cold_models.folder())
        model = cold_models.sklearn(folder / "model", estimator="forest")
        stack = Stack(DataDir(folder / "data"))
        exits.push_async_callback(stack.end)
        await stack.start()
        kube = await exits.enter_async_context(await connect(stack.where.kubeconfig, component="bench"))
        world = World(kube, stack, manifest, model.directory)
        await world.deploy()
        every = range(world.space.size)
        rounds, searches = await play(world, options.rounds, every, options.out)
    found = truth(rounds)
    show(world, found, searches, rounds)
    spent = [sum(seen.seconds for seen in round_) for round_ in rounds]
    results = {
        "specs": world.space.size, "windowSeconds": options.window, "rounds": options.rounds,
        "feasible": int(np.isfinite(found.mean).sum()), "failed": int(np.isinf(found.margins).sum()),
        "best": _named(world, found.best), "intervalOfAMean": round(math.expm1(found.reach), 4),
        "withinItsInterval": int(sum(found.within(row) for row in every)), "secondsPerRound": [round(s) for s in spent],
        "searches": [
            {
                "recommended": None if one.row is None else _named(world, one.row), "ratio": round(found.ratio(one.row), 4),
                "rank": None if one.row is None else 1 + int((found.mean > found.mean[one.row]).sum()),
                "trials": one.trials, "seconds": one.seconds, "says": one.message,
            }
            for one in searches
        ],
    }  # fmt: skip
    report("live_tuning", results, _bars(found, searches))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="of the whole grid, about 20 minutes each")
    parser.add_argument("--quick", action="store_const", dest="rounds", const=1, help="one round")
    parser.add_argument("--window", type=int, default=2, help="seconds; the sample's 5 take twice as long")
    parser.add_argument(
        "--out", type=_folder, help="directory for every measurement and the searches' reports"
    )
    asyncio.run(main(parser.parse_args()))
