"""Begins a process of locust: `python -m tuner.load.driver FD PARENT CORE USER`.

FD is the socket to the parent, PARENT its process id; CORE the core to stay on, USER the user to become; -1 for either: as it is.
What cannot be had afterwards is done before anything else is imported.
"""

import os
import sys

from tuner.load.driver.confinement import become, die_with, open_many, stay_on


def main() -> None:
    """Bind this process to its parent and its core, then drive."""
    descriptor, parent, core, user = (int(argument) for argument in sys.argv[1:5])
    die_with(parent)
    stay_on(core)
    open_many()
    from tuner.load.driver.session import serve  # noqa: PLC0415 it imports locust

    become(user)
    die_with(parent)  # a change of the user forgets it
    serve(descriptor)
    os._exit(0)  # locust's threads and hooks have nothing to finish


if __name__ == "__main__":
    main()
