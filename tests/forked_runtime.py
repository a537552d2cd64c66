"""A zygote at its least: imports what a runtime says, forks once, and reports what the child did.

    python -m tests.forked_runtime MODULE REPORT

The child is this process's only one. REPORT is JSON, written when the child has returned from `main`:
{"code", "preloaded": threads before the fork, "imported": modules that the child had to import, "pools": threads of the
numeric libraries, "random": a number of NumPy's global generator}.
"""

import importlib
import json
import os
import sys
from pathlib import Path

from serving.runtimes.threads import VARIABLES


def main(name: str, report: Path) -> None:
    environment = dict(os.environ)
    for variable in VARIABLES:
        os.environ[variable] = "1"
    module = importlib.import_module(name)
    for needed in module.PRELOAD:
        importlib.import_module(needed)
    before = set(sys.modules)
    threads = len(list(Path("/proc/self/task").iterdir()))
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.environ.clear()
    os.environ.update(environment)
    code = module.main()
    imported = sorted(set(sys.modules) - before)
    import numpy as np
    import threadpoolctl

    pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
    found = {
        "code": code,
        "preloaded": threads,
        "imported": imported,
        "pools": pools,
        "random": np.random.random(),  # noqa: NPY002 the generator that a fork inherits
    }
    report.write_text(json.dumps(found))
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
