"""A runtime like `script_runtime` whose imports take a second."""

import sys
import time

from tests.programs.script_runtime import PRELOAD, main

__all__ = ["PRELOAD", "main"]

time.sleep(1)

if __name__ == "__main__":
    sys.exit(main())
