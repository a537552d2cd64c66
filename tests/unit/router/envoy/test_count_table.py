"""A reading of the module's counts is sane at any moment."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving import clock
from serving.router.envoy import module
from serving.router.envoy.counts.count_table import CountTable
from serving.router.envoy.counts.token_counts import PAIRS

SOURCE = Path(module.__file__).parent
PROGRAM = Path(__file__).parents[3] / "native" / "envoy_module" / "hurried.c"
FILES = ("token_accounting", "backend", "json", "table", "text")
CLUSTER = "default/chat-a/8080"
READINGS = 100_000
OLDEST_SECONDS = 10.0
"""No request of the program is older, also on a busy machine."""


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[int]:
    """Return the id of a process that counts a million requests per second."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: nothing reads counts while they change")
    program = tmp_path / "hurried"
    flags = ["-std=c11", "-O2", "-D_POSIX_C_SOURCE=200809L", "-pthread", f"-I{SOURCE}"]
    files = [str(PROGRAM), *(str(SOURCE / f"{name}.c") for name in FILES)]
    subprocess.run(["gcc", *flags, "-o", str(program), *files], check=True)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        yield process.pid
        process.stdin.close()
    assert process.returncode == 0


def test_queue_is_no_older_than_its_requests_when_a_reading_is_between_two_updates(
    hurried: int,
) -> None:
    table = CountTable(hurried)
    oldest = 0.0
    for _ in range(READINGS):
        counts = table.tokens(CLUSTER)
        oldest = max(oldest, counts.age(clock.now().timestamp()))
    assert oldest < OLDEST_SECONDS
    assert counts.counters["requests_settled"] > READINGS // 100


def test_nothing_is_settled_before_it_is_admitted_when_a_reading_is_between_two_updates(
    hurried: int,
) -> None:
    table = CountTable(hurried)
    for _ in range(READINGS):
        counters = table.tokens(CLUSTER).counters
        assert all(counters[f"{name}_admitted"] >= counters[f"{name}_settled"] for name in PAIRS)
