"""Every default of the tuner in one place, each with its unit and its reason; nothing here reads the environment."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SearchSettings:
    """What is measured next, and when enough was."""

    initial: int = 6
    """Trials that are spread over the space before a model chooses: twice the axes of a usual space."""


@dataclass(frozen=True)
class LoadSettings:
    """How a spec is driven."""


@dataclass(frozen=True)
class TrialSettings:
    """How a spec is started, watched and taken down."""


@dataclass(frozen=True)
class TunerSettings:
    """All of them."""

    search: SearchSettings = field(default_factory=SearchSettings)
    load: LoadSettings = field(default_factory=LoadSettings)
    trials: TrialSettings = field(default_factory=TrialSettings)


DEFAULTS = TunerSettings()
