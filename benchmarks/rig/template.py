"""A process that has imported a runtime and forks itself for each line of input: a zygote without a node.

    python benchmarks/rig/template.py MODULE

A line is the child's environment as JSON; the answer is a line with the child's pid. The first line of output
is the shared memory: {"pssMiB", "cpuSeconds"}.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path

from serving.embedded.kubelet.zygote.process import import_runtime
from serving.runtimes.threads import VARIABLES


def pss_mib() -> float:
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024, 1)


def main(name: str) -> None:
    os.environ.update(dict.fromkeys(VARIABLES, "1"))
    module = import_runtime(name)
    print(json.dumps({"pssMiB": pss_mib(), "cpuSeconds": round(time.process_time(), 2)}), flush=True)
    for line in sys.stdin:
        environment = json.loads(line)
        child = os.fork()
        if child == 0:
            gc.enable()
            os.environ.clear()
            os.environ.update(environment)
            os._exit(module.main())
        print(child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1])
