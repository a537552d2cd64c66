"""Every default of the tuner that a user may have a reason to change, each with its unit and its reason.

Constants of the formulas of load and search stand beside their use. Nothing here reads the environment.
"""

from dataclasses import dataclass, field

from serving.settings import Section
from serving.units import (
    Bytes,
    Count,
    CountOrZero,
    Interval,
    Pids,
    Positive,
    Rate,
    Seconds,
    Share,
    WholeSeconds,
)


@dataclass(frozen=True)
class SearchSettings(Section):
    """Which spec the search measures next, and when the search ends."""

    regret: Share = 0.01
    """Expected regret, as a share of the optimum, at which a search stops by itself: less than prices
    move."""
    hopeless: Share = 0.01
    """The search for a first spec that meets the constraints stops once the probability that there is one is
    below this."""
    confirmations: CountOrZero = 4
    """Most trials in all that repeat the winner or the runner-up: a repetition may bring another spec, which
    no trial has repeated, to the first two places."""


@dataclass(frozen=True)
class LoadSettings(Section):
    """How the load generator drives a spec and finds the highest load that meets the constraints."""

    request_timeout: Interval = 30.0
    """Time after which a request counts as failed: several times any usual limit on latency."""
    start_timeout: Interval = 60.0
    """Longest start of locust: one second on a quiet core, many beside the start of a trial's replica."""
    reply_timeout: Interval = 10.0
    """Longest wait for locust's answer to a command: a millisecond, unless another process takes its core."""
    drain_timeout: Seconds = 5.0
    """Longest wait for the first answers of new users: of hundreds that connect at once some wait a second,
    and never again that long. A lower load begins once the requests of the higher one have ended, which takes
    `request_timeout` at most."""
    most_unanswered: Count = 10_000
    """Unanswered requests of an open loop at which the target has failed; each costs a file descriptor."""
    pids_limit: Pids = 4096
    """Most processes and threads of a run where it has a user of its own, as `node.pod_pids_limit` of a Pod:
    a locustfile is anybody's code. 0 is no limit."""
    memory_bytes: Bytes = 4 * 1024 * 1024 * 1024
    """Most memory of a run where it has a user of its own. A process takes some 100 MB, and 10,000 unanswered
    requests some more."""
    window_bytes: Bytes = 128 * 1024 * 1024
    """Most memory of the records of one window, those of all its processes together: 44 bytes for each
    request and 8 for each token. The experiment fails at a longer one. 3,000,000 requests fit: 14 minutes at
    3,500 requests/s, two and a half at 20,000. The summary of the window takes several times as much memory,
    and the controllers of an installation on a cluster have 2 GiB."""
    first_rate: Rate = 5.0
    """First load of an open loop, which measures the duration of a request."""
    most_users: Positive = 1024.0
    """Most users where the load has no `maxLevel`."""
    most_rate: Rate = 20_000.0
    """Highest rate where the load has no `maxLevel`."""


@dataclass(frozen=True)
class TrialSettings(Section):
    """How a trial's replica is started, watched and removed."""

    tries: Count = 3
    """Trials of a spec whose load could not be generated before the experiment fails: a killed generator is
    bad luck once or twice, and then it is the load."""
    aftermath_seconds: Seconds = 2.0
    """Wait after a window with failed requests, in which the node reports that the replica has ended."""
    busy_share: Share = 0.2
    """Time of a replica's cores that other processes may use before the trial notes it: a desktop uses
    less."""
    refusal_seconds: Seconds = 10.0
    """Time for which the API must refuse a replica's Pod before the spec counts as refused: a webhook that
    restarts, or a quota whose Pods end, refuses it for a moment."""
    grace_seconds: WholeSeconds = 5
    """terminationGracePeriodSeconds of a measured replica: nobody waits for its answers, and an idle runtime
    stops within a second."""
    most_seconds: Interval = 3600.0
    """Longest load of a trial, from when its replica is ready: ten times the search for its highest load with
    the defaults. More or longer windows have more in proportion."""
    removal_seconds: Interval = 60.0
    """Longest wait for the removal of a replica before another trial gets its cores: twice the usual grace
    period."""
    idle_seconds: Interval = 120.0
    """Idle time after which the search worker ends: it holds 200 MB, and takes seconds to start."""
    earlier: CountOrZero = 8
    """Earlier experiments that a search learns from, the newest first: each costs the search a model of its
    own."""


@dataclass(frozen=True)
class TunerSettings(Section):
    """The tuner."""

    search: SearchSettings = field(default_factory=SearchSettings)
    load: LoadSettings = field(default_factory=LoadSettings)
    trials: TrialSettings = field(default_factory=TrialSettings)


DEFAULTS = TunerSettings()
