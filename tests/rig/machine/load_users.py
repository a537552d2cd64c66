"""User ids for the load generators of tests, leased as for those of trials."""

import os
import tempfile
from pathlib import Path

from serving.system.isolation.user_ids import UserIds

_DIRECTORY = tempfile.TemporaryDirectory()


def user_ids() -> UserIds | None:
    """Return the leases; None where the tests do not run as root."""
    return UserIds(Path(_DIRECTORY.name) / "user_ids") if os.geteuid() == 0 else None
