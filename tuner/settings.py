"""Every default of the tuner in one place, each with its unit and its reason; nothing here reads the environment."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SearchSettings:
    """What is measured next, and when enough was."""

    least_trials: int = 8
    """Below this a search does not stop by itself: what it expects to miss is a guess as long as little is known."""
    regret: float = 0.01
    """Share of the optimum that a search may expect to miss when it stops by itself: less than prices move."""
    hopeless: float = 0.01
    """Probability that anything meets the constraints below which a search for it stops."""
    safety_quantile: float = 2.33
    """Of the standard normal: 99 of 100 further measurements of what is recommended should meet its constraints."""
    confirmations: int = 4
    """Most trials that measure a winner or runner-up again: each may be overtaken by what is learned of the other."""
    doubt_from: int = 5
    """Trials that ran before earlier experiments are held against them: fewer pairs rank anything by chance."""
    doubt_below: float = 0.3
    """Kendall's tau of their ranking and the trials' below which earlier experiments lose their weight, all of it at 0."""
    alone_from: int = 2
    """Trials that ran from which on every other one is chosen without earlier experiments: the first two are what these are for."""
    confirm_from: int = 12
    """Trials of a budget below which none is kept for measuring again: two would be more than a sixth of it, and the search needs them more."""


@dataclass(frozen=True)
class LoadSettings:
    """How a spec is driven."""

    request_timeout: float = 30.0
    """Seconds until a request is given up and counted as failed: several times any limit that users set for an answer."""
    start_timeout: float = 60.0
    """Seconds that locust has to start: it takes one on a quiet core, and many where a trial's replica starts beside it."""
    stop_timeout: float = 2.0
    """Seconds that locust has to end by itself before it is killed."""
    reply_timeout: float = 10.0
    """Seconds that locust has to answer a command: it does in a millisecond, unless its core is taken away."""
    drain_timeout: float = 5.0
    """Seconds that the requests of a higher level have to be answered before a lower one begins, and new users to have their first answer
    before a higher one does: of hundreds who connect at once some wait a second for it, and never again for so long."""
    user: int = 65_534
    """User id that a process of locust gets where ours is root's: nobody's, as its locustfile may be anybody's."""
    most_unanswered: int = 10_000
    """Requests of an open loop that may wait for their answers at once: beyond it the target has failed, and each costs a file."""
    late_seconds: float = 0.01
    """A send that is this far behind its schedule is late: ten times what the event loop needs between two requests."""
    late_share: float = 0.05
    """From this share of late sends on, the generator was the limit and not the target."""
    generator_busy: float = 0.9
    """Share of its cores from which on the generator counts as the limit."""
    probe_share: float = 0.25
    """Of `windowSeconds`, that a level gets while the search for the highest is on; the level found gets it whole."""
    settle_share: float = 0.25
    """Of `warmupSeconds`, that a level after the first gets: the target is warm by then, and only its queue changes."""
    most_windows: float = 1.5
    """Times `windowSeconds`, that the last level gets at most, where its window is not steady or does not decide."""
    growth: float = 2.0
    """From one level to the next."""
    leap: float = 8.0
    """Most that a level grows at once, where latencies say that the limit is far."""
    resolution: float = 1.15
    """Ratio of two loads that are taken for the same: of the load found to that of the nearest whole window, and of the lowest at which
    the target fails to the highest at which it does not."""
    knee: float = 1.05
    """Gain in throughput below which more users are said to give no more."""
    safety: float = 2.5
    """Standard deviations of another window by which latencies stay below their limits at the load found: of 100 such windows of the same minute 99 then do
    (2.33), and a little more, as a search asks it of what it makes of several trials, which is less sure than each of them."""
    scatter: float = 0.2
    """Standard deviation of a latency percentile's logarithm from one window to the next, before any was seen, beside what few requests
    add: the recorded trials' windows are 0.27 off their curves, those far from the limit included (`benchmarks/trial_readings.py`)."""
    rate_scatter: float = 0.07
    """The same of the throughput, of which they are 0.09 off."""
    scatter_windows: float = 20.0
    """Windows that this counts for. A trial's own ten say little of how they scatter, and a margin that varies from trial to trial makes
    their throughput vary."""
    reach: float = 1.5
    """Distance in load, as a logarithm, at which a window counts 0.6 times as much as one that is near: the few ways in which latency is
    taken to grow hold for a range of loads, not for all."""
    whole_windows: int = 3
    """Loads that get a whole window at most: each moves the load found, and none need be the last to do so."""
    enough: float = 0.98
    """Share of the most throughput that fewer users may give and still be the result: what a short window cannot tell apart."""
    near_windows: int = 5
    """Windows of loads within a factor of two of the load found, as far as there are other loads: one short window more takes a second or
    two of a trial's ten, most of which are its start."""
    most_levels: int = 16
    """Windows after which no other load is looked for: 1 to 2048 users by doubling, or growth, bisection and what lies beside together."""
    first_rate: float = 5.0
    """Requests per second at which an open loop begins, to learn how long one takes."""
    most_users: float = 1024.0
    """Users that are never exceeded where the load says no maxLevel."""
    most_rate: float = 20_000.0
    """Requests per second that are never exceeded where the load says no maxLevel."""


@dataclass(frozen=True)
class TrialSettings:
    """How a spec is started, watched and taken down."""

    tries: int = 3
    """Trials of one spec whose load could not be made, before the experiment gives up: a killed generator is bad luck
    once or twice, and then it is the load."""
    load_tries: int = 2
    """Times that a generator which died is started again within one trial."""
    aftermath_seconds: float = 2.0
    """After a window with failed requests: the time in which the node says that the replica has ended, if that is why."""
    busy_share: float = 0.2
    """Of the time of a replica's cores, that others may use before it is noted: what a desktop does on the side is less."""
    grace_seconds: int = 5
    """terminationGracePeriodSeconds of a replica that was measured: nobody waits for its answers, and a runtime that has
    none to give stops within a second."""
    most_seconds: float = 3600.0
    """A trial that takes longer timed out: ten times what the searches of its load take at their defaults."""
    retry_seconds: float = 1.0
    """Between tries to write what was found while the API is away; it restarts within a second."""
    removal_poll_seconds: float = 0.1
    """Between looks at whether a replica has gone, which takes a second or two."""
    removal_seconds: float = 60.0
    """Longest wait for the replica to be gone before another trial gets its cores: twice the usual grace period."""
    idle_seconds: float = 120.0
    """The process that searches ends after this long without a question: it holds 200 MB, and takes seconds to start."""
    earlier: int = 8
    """Earlier experiments that are learned from, the newest first: each costs the search a model of its own."""


@dataclass(frozen=True)
class TunerSettings:
    """All of them."""

    search: SearchSettings = field(default_factory=SearchSettings)
    load: LoadSettings = field(default_factory=LoadSettings)
    trials: TrialSettings = field(default_factory=TrialSettings)


DEFAULTS = TunerSettings()
