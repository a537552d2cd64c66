"""The soft limit of open files is raised within the hard limit and a bound, in a process of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from serving.system.files import open_files
soft, hard, most = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
limit = open_files.set_limit(most)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, hard)
print(limit)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "most", "expected"),
    [(256, 512, 400, 400), (256, 512, 1024, 512), (512, 512, 400, 400)],
    ids=["below the hard limit", "no higher than the hard limit", "lowered"],
)
def test_soft_limit_is_the_bound_or_the_hard_limit(soft: int, hard: int, most: int, expected: int) -> None:
    arguments = [str(number) for number in (soft, hard, most)]
    run = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, check=True)
    assert int(run.stdout) == expected
