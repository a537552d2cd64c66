"""CPU time and memory of `slipway up` with all its components, beside new interpreters that import the same.

In turns: `up` until the gateway answers (forked components; CPU time of `up`, their zygote and themselves,
and their memory, each shared page divided by its users), and for each component an interpreter that imports
its modules and waits. Those serve nothing: their figures are the least that components of their own would
cost.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rig import cold_models, interrupts
from rig.harness import interval, process_seconds, report

from serving.cli.demo.stack import Stack
from serving.cli.machine.components import DECLARATIONS
from serving.data_dir import DataDir
from serving.embedded.supervisor import zygote
from serving.embedded.supervisor.supervisor import COMPONENTS
from serving.system import processes


def totals(pids: list[int]) -> tuple[float, float]:
    """Return the seconds of CPU time and the MiB of memory of these processes."""
    return sum(map(process_seconds, pids)), sum(map(cold_models.pss, pids))


async def forked() -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="slipway-up-") as root:
        stack = Stack(DataDir(Path(root) / "data"))
        await stack.start()
        try:
            names = ("up", zygote.NAME, *COMPONENTS)
            running = [processes.read_running(stack.where.identity(name)) for name in names]
            return totals([record[0].pid for record in running if record is not None])
        finally:
            await stack.end()


def interpreters() -> tuple[float, float]:
    started = []
    for name in COMPONENTS:
        program = f"import sys, {', '.join(DECLARATIONS[name].modules)}; print(); sys.stdin.read()"
        command = [sys.executable, "-c", program]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        return totals([process.pid for process in started])
    finally:
        for process in started:
            process.communicate()


async def main(*, runs: int) -> None:
    ours, imports = [], []
    for turn in range(runs):
        ours.append(await forked())
        imports.append(interpreters())
        print(f"{turn + 1} of {runs}: {ours[-1]} and {imports[-1]}", file=sys.stderr, flush=True)
    results = {
        "upCpuSeconds": interval([seconds for seconds, _ in ours]),
        "upMemoryMiB": interval([memory for _, memory in ours]),
        "importsCpuSeconds": interval([seconds for seconds, _ in imports]),
        "importsMemoryMiB": interval([memory for _, memory in imports]),
    }
    report("up_start", results, [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run")
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    interrupts.run(main(runs=1 if options.quick else options.runs))
