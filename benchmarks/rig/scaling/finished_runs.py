"""Finished runs of the scaling benchmark in files, so that hours of simulation survive an interruption."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import autoscaler
from autoscaler.simulate.scores import Scores
from rig.scaling.runs import Plan, Row
from serving.system.files import atomic_file


@dataclass(frozen=True)
class FinishedRuns:
    """The rows of one plan with one state of the autoscaler's code, a file for each service and seed."""

    directory: Path

    @classmethod
    def of(cls, root: Path, plan: Plan) -> "FinishedRuns":
        """Return those of a plan; another plan, or a change of the code, has a directory of its own."""
        digest = hashlib.blake2b(repr(plan).encode(), digest_size=8)
        for path in sorted(Path(autoscaler.__file__).parent.rglob("*.py")):
            digest.update(path.read_bytes())
        return cls(root / digest.hexdigest())

    def rows(self, service: int, seed: int) -> list[Row]:
        """Return the rows of a finished run, or none."""
        try:
            text = self._path(service, seed).read_text()
        except FileNotFoundError:
            return []
        return [
            Row(**{**row, "tags": frozenset(row["tags"]), "scores": Scores(**row["scores"])})
            for row in json.loads(text)
        ]

    def keep(self, service: int, seed: int, rows: Sequence[Row]) -> None:
        """Write the rows of a finished run."""
        self.directory.mkdir(parents=True, exist_ok=True)
        listed = [{**asdict(row), "tags": sorted(row.tags)} for row in rows]
        atomic_file.replace(self._path(service, seed), json.dumps(listed).encode())

    def _path(self, service: int, seed: int) -> Path:
        return self.directory / f"{service}-{seed}.json"
