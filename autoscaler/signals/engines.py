"""Parses the metrics pages of inference engines, by the metric names in the engines' manifests. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from serving.resources import metric_names
from serving.resources.engine import Engine, EngineSeries

RUNTIME_METRICS = EngineSeries(waiting_tokens=[metric_names.PROMPT_TOKENS_WAITING])
"""Metrics that Slipway's own runtime has in addition to those with vLLM's names."""

LONGEST_LINE = 8192
"""Most characters of a line; a longer one is skipped. A name and ten labels of 100 characters are 1,200."""
_LABEL = re.compile(r'(?<!\w)\w+="[^"]*"')
"""A match begins only where a word begins: else the time for a long word would be quadratic in its length."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """The load of one replica; a field is None where the engine does not export it."""

    waiting: float | None = None
    """Waiting requests."""
    running: float | None = None
    """Requests that the engine works on."""
    waiting_tokens: float | None = None
    """Prompt tokens of waiting requests."""
    cache: float | None = None
    """Share of the KV cache in use, 0 to 1."""
    prompt_tokens: float | None = None
    """Total since the replica started."""
    generated_tokens: float | None = None
    """Total since the replica started."""

    @property
    def tokens(self) -> float | None:
        """Prompt and generated tokens since the replica started."""
        known = [part for part in (self.prompt_tokens, self.generated_tokens) if part is not None]
        return sum(known) if known else None


class EnginePageParser:
    """Parses the pages of all known engines, by one table from series names to fields of `EngineReading`."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        """Args: engines: by name."""
        tables = [RUNTIME_METRICS, *(engine.metrics for engine in engines.values())]
        self._field_of = dict(_fields(tables))
        names = "|".join(sorted({re.escape(name.partition("{")[0]) for name in self._field_of}))
        # The expression begins with the known names: any other line of the page is skipped at once.
        self._sample = re.compile(rf"^({names})(\{{.*\}})? (\S+)", re.MULTILINE)

    def parse(self, text: str) -> EngineReading:
        """Parse a replica's page; values that are not finite are ignored."""
        values: dict[str, float] = {}
        for sample in self._sample.finditer(text):
            if sample.end() - sample.start() > LONGEST_LINE:
                continue
            # A manifest names a series by its name, or by its name and one label.
            names = [sample[1], *(f"{sample[1]}{{{label}}}" for label in _LABEL.findall(sample[2] or ""))]
            for field in filter(None, map(self._field_of.get, names)):
                value = _number(sample[3])
                if value is not None:
                    combine = max if field == "cache" else float.__add__
                    values[field] = combine(values.get(field, 0.0), value)
        return EngineReading(**values)


def waiting_tokens(reading: EngineReading, prompt_length: float) -> float | None:
    """Return the waiting prompt tokens: the engine's count, else waiting requests times `prompt_length`.

    Args:
        reading: of one replica.
        prompt_length: mean tokens of a prompt.
    """
    if reading.waiting_tokens is not None:
        return reading.waiting_tokens
    return reading.waiting * prompt_length if reading.waiting is not None else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _fields(tables: Iterable[EngineSeries]) -> Iterable[tuple[str, str]]:
    """Yield the name of each series and its field."""
    for table in tables:
        for field in EngineSeries.model_fields:
            for name in getattr(table, field):
                yield name, field
