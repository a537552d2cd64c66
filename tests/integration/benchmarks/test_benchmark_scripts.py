"""The benchmarks' programs: each can be imported and called, and ends what it has started on a signal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SCRIPTS = sorted(path.name for path in BENCHMARKS.glob("*.py"))
HELP_OF_ALL = """
import contextlib, io, runpy, sys
for script in sys.argv[1:]:
    sys.argv, out, code = [script, "--help"], io.StringIO(), None
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    except Exception as error:
        code = repr(error)
    print(script, code, "usage:" in out.getvalue())
"""
"""One process, as the scripts share most imports."""
WITH_A_CHILD = """
import asyncio, sys
from rig import interrupts

async def main():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    print(child.pid, flush=True)
    try:
        await child.wait()
    finally:
        child.kill()
        await child.wait()

interrupts.run(main())
"""
WITH_UP = """
import asyncio, contextlib, pathlib, sys
from rig import interrupts
from serving.cli.demo.stack import Stack
from serving.data_dir import DataDir

async def main():
    stack = Stack(DataDir(pathlib.Path(sys.argv[1])))
    async with contextlib.AsyncExitStack() as exits:
        exits.push_async_callback(stack.end)
        await stack.start()
        print("up", flush=True)
        await asyncio.sleep(600)

interrupts.run(main())
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent)])},
        start_new_session=True,
    )


def test_every_benchmark_prints_its_help() -> None:
    with start(HELP_OF_ALL, *(str(BENCHMARKS / script) for script in SCRIPTS)) as process:
        out, err = process.communicate(timeout=100)
    assert out.splitlines() == [f"{BENCHMARKS / script} 0 True" for script in SCRIPTS], err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_ends_its_child_and_exits_with_the_signal(number: signal.Signals) -> None:
    with start(WITH_A_CHILD) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_an_interrupted_benchmark_ends_its_slipway_up(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with start(WITH_UP, str(data_dir)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n", process.communicate()[1]
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)  # has no effect on the cleanup
        assert process.wait(60) == 143
    assert not data_dir.exists()
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(data_dir) not in running
