"""Entry point of a locust process: `python -m tuner.load.driver FD PARENT CORE USER [CGROUP...]`.

FD is the socket to the parent, PARENT a pidfd of it, CORE the core to pin to, USER the user id to take, each
CGROUP a directory to join; -1 leaves core or user unchanged. The import of locust is already pinned, limited
and hidden. The change of the user comes after the import: the user need not be able to read the modules.
"""

import os
import sys

from serving.system.files import open_files
from serving.system.isolation.namespaces import die_with
from tuner.load.driver.confinement import give_up_rights, hide_machine, join, stay_on


def main() -> None:
    """Bind this process to its parent and its core, then drive load."""
    descriptor, parent, core, user = (int(argument) for argument in sys.argv[1:5])
    die_with(parent)
    stay_on(core)
    join(sys.argv[5:])
    open_files.set_limit()  # each unanswered request has one
    hide_machine()
    from tuner.load.driver.session import serve  # noqa: PLC0415 it imports locust

    give_up_rights(user)
    die_with(parent)  # a change of the user resets it
    os.close(parent)
    serve(descriptor)
    os._exit(0)  # skip locust's threads and exit hooks


if __name__ == "__main__":
    main()
