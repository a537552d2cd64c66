"""Real searches against the truth: every spec of manifests/samples/tuning.yaml, measured three times.

The whole product runs (`slipway up`). The first round measures each of the 96 specs once, in random order, by
Trials like those of an experiment but without early stops. The other rounds measure those that reached half
of the best so far, and what searches recommended. Before each round an experiment searches the space without
prior, with its own seed. So grid and searches see the same minutes of the machine. Load generator and replica
have their own cores. Everything takes about an hour. --out keeps the measurements, and the next
run continues from there: `live.jsonl` has a line for each search and each Trial; a deleted line is measured
again. Recorded windows are always evaluated by the current code.

The truth of a spec is the mean of the logarithms of its measurements, of which a spec that a late search
recommended has fewer. The standard error comes from all specs with at least half of the best mean, because
three measurements of one spec do not determine it. A search is right if its recommended spec is within the 95
% interval of the best mean.
"""

import argparse
import contextlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import orjson
import yaml
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rig import cold_models, interrupts
from rig.harness import ROOT, SEED, Bar, report
from rig.searches import recorded_trials
from rig.searches.grid_truth import Truth, truth
from rig.searches.live_world import Search, TuningWorld

from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir
from serving.kube import connect
from serving.objects import Object
from serving.resources.tuning.experiment import Setting
from serving.resources.tuning.trial import TrialStatus
from tuner.search.problem import TrialObservation

MOST_TRIALS = 20
SHOWN = 10


class Kept:
    """The measurements so far, as lines of JSON."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "live.jsonl"
        self.searches: dict[int, Search] = {}
        self.grid: dict[tuple[int, int], Object] = {}
        """The status of the Trial of each round and row."""
        for line in self._file.read_bytes().splitlines() if self._file.exists() else []:
            self._take(orjson.loads(line))

    def _take(self, line: Object) -> None:
        if "search" in line:
            self.searches[line["round"]] = Search(**line["search"])
        else:
            self.grid[line["round"], line["row"]] = line["status"]

    def search(self, number: int, search: Search) -> None:
        self._write({"round": number, "search": asdict(search)})

    def trial(self, number: int, row: int, trial: Object) -> None:
        settings = {setting["name"]: setting["value"] for setting in trial["spec"]["settings"]}
        self._write({"round": number, "row": row, "settings": settings, "status": trial["status"]})

    def _write(self, line: Object) -> None:
        with self._file.open("ab") as file:
            file.write(orjson.dumps(line) + b"\n")
        self._take(orjson.loads(orjson.dumps(line)))


async def play(world: TuningWorld, kept: Kept, rounds: int, folder: Path) -> None:
    """Run the rounds: a search, then a Trial of each spec that may be the best."""
    with Progress(console=Console(stderr=True, width=110)) as progress:
        for number in range(rounds):
            task = progress.add_task(f"round {number + 1} of {rounds}", total=None)
            if number not in kept.searches:
                search = await world.search(number)
                await world.page(search, folder)
                kept.search(number, search)
            rows = await _measured_in(world, kept, number)
            progress.update(task, total=len(rows))
            for row in random.Random(SEED + number).sample(rows, len(rows)):
                if (number, row) not in kept.grid:
                    kept.trial(number, row, await world.measure(row, number))
                progress.advance(task)


async def _measured_in(world: TuningWorld, kept: Kept, number: int) -> list[int]:
    """Return the rows that a round measures."""
    if number == 0:
        return list(range(world.space.size))
    earlier = truth([await _observations(world, kept, before) for before in range(number)])
    recommended = {search.row for search in kept.searches.values() if search.row is not None}
    return sorted(recommended.union(earlier.contenders()))


async def _observations(world: TuningWorld, kept: Kept, number: int) -> list[TrialObservation | None]:
    """Return the observation of each spec in a round; None where the round left the spec out."""
    statuses = [kept.grid.get((number, row)) for row in range(world.space.size)]
    return [None if status is None else await world.read(row, status) for row, status in enumerate(statuses)]


def _as_recorded(
    world: TuningWorld, kept: Kept
) -> Iterator[tuple[int, int, tuple[Setting, ...], TrialStatus]]:
    for (number, row), status in sorted(kept.grid.items(), key=lambda entry: str(entry[1].get("startTime"))):
        yield number, row, world.space.settings(row), TrialStatus.model_validate(status)


def show(world: TuningWorld, observed: Truth, searches: Sequence[Search]) -> None:
    """Print the best specs, and the searches that recommended them."""
    table = Table(title="The best specs, over all rounds", title_justify="left", box=None)
    for column in ("spec", "of the best", "rounds", "worst margin", "recommended by"):
        table.add_column(column)
    order = [int(row) for row in (-observed.mean).argsort(kind="stable")[:SHOWN]]
    for row in [
        *order,
        *(search.row for search in searches if search.row is not None and search.row not in order),
    ]:
        each = [math.exp(value - observed.mean[observed.best]) for value in observed.values[row]]
        table.add_row(
            world.named(row),
            f"{observed.ratio(row):.3f}",
            " ".join(f"{value:.3f}" for value in each),
            f"{observed.margins[row]:+.2f}",
            " ".join(search.name for search in searches if search.row == row),
        )
    Console(stderr=True, width=140).print(table)


def results(world: TuningWorld, observed: Truth, searches: Sequence[Search]) -> Object:
    """Return the figures of the JSON line."""
    return {
        "specs": world.space.size,
        "windowSeconds": world.spec.load.window_seconds,
        "rounds": observed.values.shape[1],
        "feasible": sum(math.isfinite(mean) for mean in observed.mean),
        "failed": sum(math.isinf(margin) for margin in observed.margins),
        "best": world.named(observed.best),
        "repeatability": round(observed.deviation, 4),
        "intervalOfAMean": round(math.expm1(observed.reach), 4),
        "withinItsInterval": sum(observed.within(row) for row in range(world.space.size)),
        "searches": [
            {
                "recommended": None if search.row is None else world.named(search.row),
                "ratio": round(observed.ratio(search.row), 4),
                "rank": None
                if search.row is None
                else 1 + int((observed.mean > observed.mean[search.row]).sum()),
                "trials": search.trials,
                "seconds": round(search.seconds, 1),
                "says": search.message,
            }
            for search in searches
        ],
    }


def bars(observed: Truth, searches: Sequence[Search]) -> list[Bar]:
    """Return the bars: the interval of the best spec, and the budget of trials."""
    least = round(math.exp(-observed.reach), 4)
    held = []
    for search in searches:
        label = f"{search.name}: the recommended spec over the best, whose interval begins at the bar"
        held.append(Bar(label, round(observed.ratio(search.row), 4), least, observed.within(search.row)))
        held.append(Bar(f"{search.name}: trials", search.trials, MOST_TRIALS, search.trials <= MOST_TRIALS))
    return held


async def main(options: argparse.Namespace) -> None:
    """Measure, and report."""
    manifest = yaml.safe_load((ROOT / "manifests/samples/tuning.yaml").read_text())
    manifest["spec"]["load"] = {"windowSeconds": options.window, "warmupSeconds": 1}
    async with contextlib.AsyncExitStack() as exits:
        folder = exits.enter_context(cold_models.folder())
        out = options.out or folder
        out.mkdir(parents=True, exist_ok=True)
        model = cold_models.sklearn(folder / "model", estimator="forest")
        stack = Stack(DataDir(folder / "data"))
        exits.push_async_callback(stack.end)
        await stack.start()
        kube = await exits.enter_async_context(await connect(stack.where.kubeconfig, component="bench"))
        world = TuningWorld(kube, stack, manifest, model.directory)
        await world.deploy()
        kept = Kept(out)
        await play(world, kept, options.rounds, out)
        rounds = [await _observations(world, kept, number) for number in range(options.rounds)]
    if options.windows:
        recorded_trials.record(options.windows, _as_recorded(world, kept))
    observed = truth(rounds)
    searches = [kept.searches[number] for number in range(options.rounds)]
    show(world, observed, searches)
    report("live_tuning", results(world, observed, searches), bars(observed, searches))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="of which the first, half an hour, has every spec"
    )
    parser.add_argument("--quick", action="store_const", dest="rounds", const=2, help="two rounds")
    parser.add_argument("--window", type=int, default=2, help="seconds; the sample's 5 take twice as long")
    parser.add_argument(
        "--out", type=Path, help="directory of what was measured, and of the searches' reports"
    )
    parser.add_argument(
        "--windows", type=Path, help="file for the windows of the grid, as benchmarks/data has them"
    )
    interrupts.run(main(parser.parse_args()))
