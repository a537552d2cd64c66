"""The file with the answers that clusters had before they were removed and added again.

Envoy's module never resets its counts, while Envoy's own counts begin at zero for a cluster that is added
again. A gateway that adopts the Envoy cannot see this from the counts.
"""

from collections.abc import Mapping
from pathlib import Path

from serving.router.envoy.counts.count_table import Answers
from serving.system import processes
from serving.system.files import run_files
from serving.system.processes import ProcessIdentity


def write(path: Path, envoy: ProcessIdentity, answers: Mapping[str, Answers]) -> None:
    """Write the answers by cluster; a full disk delays it."""
    clusters = {
        name: [list(each.classes), list(each.durations), each.microseconds] for name, each in answers.items()
    }
    run_files.write(path, processes.encoded(envoy, clusters=clusters))


def read(path: Path, envoy: ProcessIdentity) -> dict[str, Answers]:
    """Return the answers by cluster; none if the file is missing, unreadable or of another Envoy."""
    try:
        record = processes.read_identity(path)
    except OSError:
        return {}
    if record is None or record[0] != envoy:
        return {}
    try:
        return {
            name: Answers(tuple(classes), tuple(durations), microseconds)
            for name, (classes, durations, microseconds) in record[1]["clusters"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
