"""Inputs of property tests: the same in every run of the suite, new ones in `make fuzz`."""

import os
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

SUITE = "suite"
"""Profile of the suite. Every run has the same inputs."""
FUZZ = "fuzz"
"""Profile of `make fuzz`."""
FACTOR = int(os.environ.get("SLIPWAY_FUZZ_FACTOR", "25"))
"""Number of examples in `make fuzz` for each example in the suite."""
FAILURES = Path(".hypothesis") / "fuzz"
"""Failing inputs, which the next `make fuzz` tries first."""


def register_profiles() -> None:
    """Register both profiles, without deadlines, as a busy machine is slow; load that of the suite."""
    settings.register_profile(SUITE, deadline=None, derandomize=True, database=None)
    settings.register_profile(
        FUZZ,
        deadline=None,
        derandomize=False,
        database=DirectoryBasedExampleDatabase(FAILURES),
        print_blob=True,
    )
    settings.load_profile(SUITE)


def fuzzed(examples: int) -> settings:
    """Return the settings of a test with so many inputs in the suite, `FACTOR` times as many in a fuzz."""
    checks = list(HealthCheck)
    if settings.get_current_profile_name() == FUZZ:
        return settings(max_examples=examples * FACTOR, suppress_health_check=checks)
    return settings(
        max_examples=examples, phases=[Phase.explicit, Phase.generate], suppress_health_check=checks
    )
