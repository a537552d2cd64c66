"""Every default of the tuner in one place, each with its unit and its reason.

Nothing here reads the environment.
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
    Ratio,
    Seconds,
    Share,
    WholeSeconds,
)


@dataclass(frozen=True)
class SearchSettings(Section):
    """Which spec the search measures next, and when the search ends."""

    least_trials: Count = 8
    """Trials before a search may stop by itself: with fewer, its expected regret is a guess."""
    regret: Share = 0.01
    """Expected regret, as a share of the optimum, at which a search stops by itself: less than prices
    move."""
    hopeless: Share = 0.01
    """The search for a first spec that meets the constraints stops once the probability that there is one is
    below this."""
    safety_quantile: Positive = 2.33
    """Quantile of the standard normal distribution: 99 of 100 further measurements of a recommended spec
    should meet the constraints."""
    confirmations: CountOrZero = 4
    """Most trials in all that repeat the winner or the runner-up: a repetition may bring another spec, which
    no trial has repeated, to the first two places."""
    doubt_from: Count = 5
    """Trials from which the ranking by earlier experiments is compared with that of the trials: with fewer,
    rankings agree by chance."""
    doubt_below: Share = 0.3
    """Earlier experiments lose weight if Kendall's tau between the ranking by them and that of the trials is
    below this; at a tau of 0 they have none."""
    alone_from: CountOrZero = 2
    """Trials that ran from which every second spec is chosen without earlier experiments; the first two
    follow them."""
    confirm_from: Count = 12
    """Budget in trials below which none is reserved for repetition: two would be more than a sixth of the
    budget."""


@dataclass(frozen=True)
class LoadSettings(Section):
    """How the load generator drives a spec and finds the highest load that meets the constraints."""

    request_timeout: Interval = 30.0
    """Time after which a request counts as failed: several times any usual limit on latency."""
    start_timeout: Interval = 60.0
    """Longest start of locust: one second on a quiet core, many beside the start of a trial's replica."""
    stop_timeout: Interval = 2.0
    """Longest wait for locust to end by itself before it is killed."""
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
    late_share: Share = 0.05
    """Share of requests sent late from which the generator counts as the limit, and not the target."""
    generator_busy: Share = 0.9
    """Share of its cores from which the generator counts as the limit."""
    probe_share: Share = 0.25
    """Share of `windowSeconds` for a load while the search for the highest load runs; the result gets a whole
    one."""
    settle_share: Share = 0.25
    """Share of `warmupSeconds` for each load after the first: the target is warm by then, only its queue
    changes."""
    most_windows: Ratio = 1.5
    """Longest last window, in `windowSeconds`, when the window is not steady or does not decide."""
    growth: Ratio = 2.0
    """Factor from one load to the next."""
    leap: Ratio = 8.0
    """Largest factor from one load to the next, when latencies are far below their limits."""
    resolution: Ratio = 1.15
    """Ratio below which two loads count as equal: of the result to the nearest whole window, and of the
    lowest load at which the target fails to the highest at which it does not."""
    knee: Ratio = 1.05
    """Gain in throughput below which more users give no more."""
    safety: Positive = 2.5
    """Standard deviations of a window by which latencies stay below their limits at the resulting load: 99 of
    100 such windows of the same minute then meet them (2.33), and some more, as the search asks the same of
    the estimate from several trials, which is less certain than each of them."""
    scatter: Positive = 0.2
    """Prior standard deviation of the logarithm of a latency percentile between windows, beside what few
    requests add: the windows of the recorded trials are 0.27 off their curves, those far from the limit
    included (`benchmarks/trial_readings.py`)."""
    rate_scatter: Positive = 0.07
    """The same for throughput; the recorded trials are 0.09 off."""
    scatter_windows: Positive = 20.0
    """Weight of that prior, in windows. The ten windows of a trial say little about their own scatter, and an
    allowance that varies between trials makes their throughput vary."""
    reach: Positive = 1.5
    """Distance between two loads, as a logarithm, at which a window has 0.6 of the weight of a near one: the
    models of latency hold for a range of loads, not for all."""
    whole_windows: Count = 3
    """Most loads that get a whole window: each moves the result, and none need be the last to do so."""
    enough: Share = 0.98
    """Share of the highest throughput at which fewer users are the result: a short window cannot tell them
    apart."""
    near_windows: CountOrZero = 5
    """Windows at loads within a factor of two of the result, if there are so many loads: a short window takes
    one or two of a trial's ten seconds, most of which are its start."""
    most_levels: Count = 16
    """Windows after which no other load is tried: 1 to 2,048 users by doubling, or growth, bisection and the
    loads near the result together."""
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
    load_tries: Count = 2
    """Restarts of a generator within one trial."""
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
    retry_seconds: Interval = 1.0
    """Pause between attempts to write a result while the API is away; the API restarts within a second."""
    removal_poll_seconds: Interval = 0.1
    """Pause between checks that a replica has been removed; a removal takes a second or two."""
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
