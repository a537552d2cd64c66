"""Types of settings: numbers with units and bounds. Imports no validation library, as every replica imports
the settings.
"""

from typing import Annotated, Any, NamedTuple


class Quantity(NamedTuple):
    """Unit and inclusive bounds of a setting."""

    unit: str
    least: float
    most: float

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Add the bounds to the schema of the number (pydantic's protocol for annotations)."""
        return {**handler(source), "ge": self.least, "le": self.most}


_MOST_SECONDS = 1e8
"""Three years: a longer time is a mistake."""
_MOST_COUNT = 1_000_000_000

Port = Annotated[int, Quantity("TCP port", 0, 65535)]
Seconds = Annotated[float, Quantity("seconds", 0, _MOST_SECONDS)]
WholeSeconds = Annotated[int, Quantity("seconds", 0, _MOST_SECONDS)]
Interval = Annotated[float, Quantity("seconds", 0.001, _MOST_SECONDS)]
"""Seconds between two repetitions: never 0, which would repeat without a pause."""
LeaseSeconds = Annotated[int, Quantity("seconds", 1, 86_400)]
Days = Annotated[int, Quantity("days", 1, 36_500)]
Bytes = Annotated[int, Quantity("bytes", 1, 2**53)]
ModuleBytes = Annotated[int, Quantity("bytes", 1, 10**9)]
"""At most the largest number that Envoy's module reads (`MAX_TOKENS` of `json.h` there)."""
Count = Annotated[int, Quantity("count", 1, _MOST_COUNT)]
CountOrZero = Annotated[int, Quantity("count", 0, _MOST_COUNT)]
Pids = Annotated[int, Quantity("processes and threads", 0, 2**22)]
"""At most the kernel's largest pid_max."""
Share = Annotated[float, Quantity("share of 1", 0, 1)]
Percent = Annotated[float, Quantity("percent", 0, 100)]
Ratio = Annotated[float, Quantity("ratio", 1, 1e6)]
"""A factor of at least 1."""
Positive = Annotated[float, Quantity("number", 1e-9, 1e9)]
Rate = Annotated[float, Quantity("requests per second", 0.001, 1e9)]
