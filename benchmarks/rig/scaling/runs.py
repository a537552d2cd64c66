"""Scaling policies on recorded and synthetic load: the runs, and their CPU time."""

import gzip
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from autoscaler.decision_values import Decision
from autoscaler.observation import Observation
from autoscaler.simulate.oracle import oracle_of
from autoscaler.simulate.policy import Policy
from autoscaler.simulate.policy_inputs import LoadHistory, PolicyInputs
from autoscaler.simulate.run import Run, run
from autoscaler.simulate.scores import Scores, oracle_scores, scores
from autoscaler.simulate.startup import Startup, around, fleet
from autoscaler.simulate.workloads import scenarios, traces
from autoscaler.simulate.workloads.scenarios import Recipe
from autoscaler.simulate.workloads.workload import Workload
from rig.scaling import policies, synthetic

FLEET = "fleet"
"""The start-up law that a production fleet has; other laws are named by their seconds."""

SWEPT_STARTUPS = ("30", "120")
"""For which the trade of cost against violations is drawn."""
SPARSE_STARTUP = "60"
"""For which clients with few requests are run."""


@dataclass(frozen=True)
class Plan:
    """The runs; each worker derives the same list of services."""

    directory: Path
    startups: tuple[str, ...]
    policies: tuple[str, ...]
    days: float
    """Scored days of a trace, at most."""
    clients: int
    """Sparse clients of each trace of clients, at most."""
    only: str
    """Part of the name of the services that are run."""
    history: bool
    """Whether policies know the days before."""
    lean: bool
    """Whether the cheapest schedules are looked for, which takes some seconds each."""
    skipped: tuple[str, ...] = ()
    """Names of services that are left out."""


@dataclass(frozen=True)
class Row:
    """One run."""

    service: str
    tags: frozenset[str]
    startup: str
    seed: int
    policy: str
    scores: Scores
    milliseconds: float = 0.0
    """CPU time of a decision, on the mean."""
    slowest: float = 0.0
    """Milliseconds of the slowest decision."""


@dataclass
class Timed:
    """A policy whose decisions are timed."""

    policy: Policy
    seconds: float = 0.0
    slowest: float = 0.0
    decisions: int = 0

    @property
    def interval(self) -> float:
        return self.policy.interval

    def decide(self, observation: Observation) -> Decision:
        started = time.thread_time()
        decision = self.policy.decide(observation)
        took = time.thread_time() - started
        self.seconds += took
        self.slowest = max(self.slowest, took)
        self.decisions += 1
        return decision


def recorded(directory: Path) -> dict[str, traces.Trace]:
    """Return the traces of a directory by file stem; raise SystemExit for an unreadable one."""
    paths = sorted(path for path in directory.iterdir() if path.name.endswith((".csv", ".csv.gz")))
    try:
        return {path.name.split(".")[0]: traces.parse(path.name, _text(path)) for path in paths}
    except traces.UnreadableTrace as error:
        raise SystemExit(f"--traces: {error}") from None


@cache
def services(plan: Plan) -> Sequence[Recipe]:
    """Return the services of a plan, the costly ones first, so that no worker is left with one at the end."""
    recipes = scenarios.recipes(recorded(plan.directory), days=plan.days, clients=plan.clients)
    recipes += synthetic.recipes(plan.days)
    chosen = [
        recipe
        for recipe in recipes
        if plan.only in recipe.name and recipe.name not in plan.skipped and _startups(plan, recipe)
    ]
    return sorted(chosen, key=lambda recipe: -recipe.cut.seconds)


def play(plan: Plan, service: int, seed: int) -> list[Row]:
    """Run every policy under every start-up law with the same load of one service and seed."""
    recipe = services(plan)[service]
    workload = recipe.workload(seed)
    if not plan.history:
        workload = replace(workload, history=LoadHistory())  # of a controller without stored state
    schedules = workload.schedules(lean=plan.lean)
    limit = workload.limit()
    rows = []
    for name in _startups(plan, recipe):
        startup = law(name)
        oracle = oracle_of(schedules, startup.typical)
        rows += [
            Row(recipe.name, recipe.tags, name, seed, policy, score)
            for policy, score in oracle_scores(workload, oracle).items()
        ]
        for policy in _policies(plan, recipe, name):
            played, timed = _timed(workload, startup, policies.registry()[policy], seed, limit)
            rows.append(
                Row(
                    recipe.name,
                    recipe.tags,
                    name,
                    seed,
                    policy,
                    scores(workload, played, oracle),
                    1000 * timed.seconds / max(timed.decisions, 1),
                    1000 * timed.slowest,
                )
            )
    return rows


def law(name: str) -> Startup:
    """Return the start-up law of a name: `fleet`, or seconds."""
    return fleet() if name == FLEET else around(float(name))


def _timed(
    workload: Workload, startup: Startup, build: Callable[[PolicyInputs], Policy], seed: int, limit: int
) -> tuple[Run, Timed]:
    timed: list[Timed] = []

    def wrapped(terms: PolicyInputs) -> Policy:
        timed.append(Timed(build(terms)))
        return timed[0]

    return run(workload, startup, wrapped, seed=seed, limit=limit), timed[0]


def _startups(plan: Plan, recipe: Recipe) -> tuple[str, ...]:
    """Return the start-up laws: of clients, of which there are many, the one that their bars are about."""
    return tuple(name for name in plan.startups if "client" not in recipe.tags or name == SPARSE_STARTUP)


def _policies(plan: Plan, recipe: Recipe, startup: str) -> tuple[str, ...]:
    """Return the policies: other risks than the default only where they are compared."""
    swept = set() if startup in SWEPT_STARTUPS and "client" not in recipe.tags else set(policies.swept())
    return tuple(name for name in plan.policies if name not in swept)


def _text(path: Path) -> str:
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt") as stream:
        return str(stream.read())
