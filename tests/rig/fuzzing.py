"""Inputs of fuzzing tests: the same few in every run of the suite, many new ones in `make fuzz`."""

import os
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

PROFILE = "fuzz"
FACTOR = int(os.environ.get("SLIPWAY_FUZZ_FACTOR", "25"))
"""Number of examples in `make fuzz` for each example in the suite."""
FAILURES = Path(".hypothesis") / "fuzz"
"""Failing inputs, which the next `make fuzz` tries first."""


def fuzzed(examples: int) -> settings:
    """Return the settings of a test that tries `examples` inputs in the suite."""
    checks = list(HealthCheck)
    if settings.get_current_profile_name() == PROFILE:
        return settings(
            max_examples=examples * FACTOR,
            deadline=None,
            derandomize=False,
            database=DirectoryBasedExampleDatabase(FAILURES),
            print_blob=True,
            suppress_health_check=checks,
        )
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=checks,
    )
