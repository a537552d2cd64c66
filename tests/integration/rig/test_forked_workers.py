"""Sessions with forked workers, each a pytest of its own."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[2]
CONFTEST = """
import os
import pytest
pytest_plugins = ["tests.rig.forked_workers"]

@pytest.fixture(scope="session", autouse=True)
def session(tmp_path_factory):
    yield
    (tmp_path_factory.getbasetemp() / "ended").write_text(os.environ["SLIPWAY_TEST_WORKER"])
"""


def run(root: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    (root / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (root / f"test_{name}.py").write_text(text)
    command = [
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(root),
        "--basetemp",
        str(root / "temporary"),
    ]
    return subprocess.run(
        [sys.executable, *command, "-p", "no:cacheprovider", "--workers", "2", *options, str(root)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_results_and_output_are_those_of_each_test(tmp_path: Path) -> None:
    completed = run(
        tmp_path,
        "-rs",
        a="def test_passes(): print('printed by a')\n"
        "def test_fails():\n    print('printed too')\n    assert 1 == 2",
        b="import pytest, warnings\ndef test_skipped(): pytest.skip('not here')\n"
        "def test_warns(): warnings.warn('an old name')",
        c="import os\ndef test_has_a_worker(): assert os.environ['SLIPWAY_TEST_WORKER'] in '01'",
    )
    assert completed.returncode == 1
    assert "1 failed, 3 passed, 1 skipped, 1 warning" in completed.stdout
    assert "assert 1 == 2" in completed.stdout
    assert "printed too" in completed.stdout
    assert "printed by a" not in completed.stdout
    assert "not here" in completed.stdout
    assert "an old name" in completed.stdout
    assert {path.read_text() for path in tmp_path.glob("temporary/worker*/ended")} == {"0", "1"}


def test_worker_that_ends_fails_its_test_alone(tmp_path: Path) -> None:
    completed = run(
        tmp_path,
        a="import os\ndef test_before(): pass\ndef test_ends(): os._exit(3)\ndef test_after(): pass",
        b="def test_other(): pass",
        c="def test_another(): pass",
    )
    assert completed.returncode == 1
    assert "1 failed, 4 passed" in completed.stdout
    assert "the worker has ended in this test, with status 3" in completed.stdout


def test_time_limit_fails_its_test_and_leaves_no_package_half_imported(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text("import time\ntime.sleep(1.5)\nvalue = 7")
    completed = run(
        tmp_path,
        "--timeout=1",
        a="import time\ndef test_hangs(): time.sleep(600)\ndef test_after(): pass",
        b="from tests.rig import optional_modules\nlarge = optional_modules.lazy('large')\n"
        "def test_imports(): assert large.value == 7\n"
        "def test_hangs_later():\n    import time\n    large.value\n    time.sleep(600)",
    )
    assert "2 failed, 2 passed" in completed.stdout, completed.stdout
    assert completed.stdout.count("Timeout (>1.0s) from pytest-timeout") >= 2


def test_session_stops_at_the_first_failure_when_asked_to(tmp_path: Path) -> None:
    slow = "import time\ndef test_slow(): time.sleep(600)"
    completed = run(tmp_path, "-x", a="def test_fails(): assert False", b=slow, c=slow)
    assert completed.returncode == 1
    assert "stopping after 1 failures" in completed.stdout


def test_session_stops_when_a_worker_has_swallowed_its_interrupt(tmp_path: Path) -> None:
    swallows = (
        "import time\nfrom pathlib import Path\ndef test_swallows():\n    Path('begun').touch()\n"
        "    try:\n        time.sleep(600)\n    except KeyboardInterrupt:\n        pass\n"
        "def test_last(): pass"  # before a file's last test, its worker asks for another file
    )
    fails = (
        "import time\nfrom pathlib import Path\ndef test_fails():\n"
        "    while not Path('begun').exists():\n        time.sleep(0.01)\n    assert False"
    )
    completed = run(tmp_path, "-x", a=fails, b=swallows)
    assert completed.returncode == 1
    assert "stopping after 1 failures" in completed.stdout


def test_failed_tests_run_once_more_alone_and_count_by_their_second_result(tmp_path: Path) -> None:
    stalls = (
        "from pathlib import Path\nseen = Path(__file__).with_suffix('.seen')\n"
        "def test_stalls():\n    seen.touch() if not seen.exists() else None\n"
        "    print('of the first run')\n    assert seen.stat().st_size == 1, seen.write_text('x')"
    )
    broken = "def test_broken(): assert 1 == 2"
    completed = run(tmp_path, "--retry-alone", a=stalls, b="def test_passes(): pass")
    assert completed.returncode == 0, completed.stdout
    assert "2 passed, 1 retried" in completed.stdout
    assert "test_stalls ran once more, alone, after this failure" in completed.stdout
    assert "of the first run" in completed.stdout
    completed = run(tmp_path, "--retry-alone", a=stalls, b=broken)
    assert completed.returncode == 1
    assert "1 failed, 1 passed, 1 retried" in completed.stdout


def test_no_test_runs_once_more_where_many_fail(tmp_path: Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test_fails(n): assert n < 0"
    completed = run(tmp_path, "--retry-alone", a=many)
    assert completed.returncode == 1
    assert "11 failed" in completed.stdout
    assert "retried" not in completed.stdout


def test_background_worker_runs_the_last_files_of_its_folder_at_a_lower_priority(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    waits = "import time\nfrom pathlib import Path\ndef test_waits():\n    end = time.monotonic() + 20\n"
    waits += "    while not Path('ended').exists():\n        time.sleep(0.01)\n"
    waits += "        assert time.monotonic() < end"
    passes = "def test_passes(): pass"  # each ordinary worker has been sent one of them while it waits
    unit = {
        "w": passes,
        "x": passes,
        "y": "import os\nfrom pathlib import Path\ndef test_ends():\n    assert os.nice(0) == 5\n"
        "    assert Path('begun').exists()\n    Path('ended').touch()",
        "z": "import os\nfrom pathlib import Path\ndef test_begins():\n    assert os.nice(0) == 5\n"
        "    Path('begun').touch()",
    }
    for name, text in unit.items():
        (tmp_path / f"unit/test_{name}.py").write_text(text)
    completed = run(tmp_path, "--background", str(tmp_path / "unit"), a=waits, b=waits)
    assert "6 passed" in completed.stdout, completed.stdout


def test_no_two_files_have_one_loopback_address() -> None:
    owners = Counter(
        number
        for path in TESTS.rglob("*.py")
        for number in set(re.findall(r"\bown\((\d+)\)", path.read_text()))
    )
    assert owners.keys() >= {"0", "70"}
    assert max(owners.values()) == 1, owners.most_common(3)
