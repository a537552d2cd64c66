"""A minimal zygote: imports a runtime's `PRELOAD`, and forks a child for each report.

    python -m tests.programs.minimal_zygote MODULE REPORT...

The n-th child (from 0) serves on PORT + n with n + 1 threads. When its `main` has returned it writes REPORT,
JSON: {"code", "preloaded": threads before the forks, "imported": modules that the child imported itself,
"pools": threads of the numeric libraries, "random": a number of NumPy's global generator}.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from serving.runtimes.threads import VARIABLES


def main(name: str, reports: list[Path]) -> None:
    environment = dict(os.environ)
    for variable in VARIABLES:
        os.environ[variable] = "1"
    module = importlib.import_module(name)
    for preloaded in module.PRELOAD:
        importlib.import_module(preloaded)
    threads = len(list(Path("/proc/self/task").iterdir()))
    children = [fork(module, environment, n, threads, report) for n, report in enumerate(reports)]
    for child in children:
        os.waitpid(child, 0)


def fork(module: Any, environment: dict[str, str], n: int, threads: int, report: Path) -> int:
    before = set(sys.modules)
    child = os.fork()
    if child:
        return child
    os.environ.clear()
    os.environ.update(environment | dict.fromkeys(VARIABLES, str(n + 1)))
    os.environ["PORT"] = str(int(environment["PORT"]) + n)
    code = module.main()
    imported = sorted(set(sys.modules) - before)
    import numpy as np
    import threadpoolctl

    content = {
        "code": code,
        "preloaded": threads,
        "imported": imported,
        "pools": [pool["num_threads"] for pool in threadpoolctl.threadpool_info()],
        "random": np.random.random(),  # noqa: NPY002 a fork inherits it
    }
    report.write_text(json.dumps(content))
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], [Path(path) for path in sys.argv[2:]])
