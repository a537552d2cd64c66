"""Tests that take turns: of the longest files a commit runs one part, and another commit another.

They start and kill whole products, or import PyTorch, which is half of the suite; all of them together would
make it longer than contributors wait. `make test-all` runs every one.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from serving import clock

ROOT = Path(__file__).parents[2]
FILES = (
    "tests/e2e/test_demo_interrupted.py",
    "tests/e2e/test_tuning.py",
    "tests/e2e/test_up_output.py",
    "tests/faults/controllers/*.py",
    "tests/faults/images/*.py",
    "tests/faults/processes/*.py",
    "tests/faults/stack/*.py",
    "tests/integration/load/test_generator.py",
    "tests/integration/runtimes/test_batching.py",
    "tests/integration/runtimes/test_forked_language_model.py",
    "tests/integration/runtimes/test_forked_runtime.py",
    "tests/integration/runtimes/test_language_models.py",
    "tests/integration/runtimes/test_raised_threads.py",
    "tests/integration/runtimes/test_shared_weights.py",
    "tests/integration/tuner/test_search_process.py",
)
PARTS = 6
ALL, BY_COMMIT = "all", "by-commit"


def turn(choice: str) -> int | None:
    """Return the part of an option: `all` (None), `by-commit`, or a number from 0 on."""
    if choice == ALL:
        return None
    if choice != BY_COMMIT:
        return int(choice) % PARTS
    head = ["git", "-C", str(ROOT), "rev-parse", "HEAD^{tree}"]
    try:
        tree = subprocess.run(head, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):  # a copy without a history
        return clock.now().toordinal() % PARTS
    return int(tree, 16) % PARTS


def others(part: int | None) -> Sequence[Path]:
    """Return the files that have another turn."""
    if part is None:
        return ()
    files = sorted(path for pattern in FILES for path in ROOT.glob(pattern) if path.name.startswith("test_"))
    return [path for number, path in enumerate(files) if number % PARTS != part]
