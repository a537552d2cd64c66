"""Whether the answers of an open loop keep up with its requests. Pure."""

import math

import numpy as np

from tuner.load.windows.samples import Samples

ANSWERED_SHARE = 0.97
"""Share of an open loop's requests that must be answered; below it the queue grows without end."""
CHANCE_DEVIATIONS = 2.0
"""Standard deviations of a Poisson count by which fewer requests may have arrived, or more may wait."""


def keeps_up(samples: Samples) -> bool:
    """Return whether the number of waiting requests grew by no more than chance over the window.

    The least number of waiting requests in the first third is compared with that in the last third, as a
    burst, and the time that an answer takes, make requests wait in any window. A failed request waits for
    ever, as it is never answered.
    """
    first_third_end, last_third_start = samples.seconds / 3, samples.seconds * 2 / 3
    # The scheduled times of all requests, and the end times of the answered ones.
    scheduled = np.sort(np.concatenate([samples.intended, samples.seconds - samples.unfinished]))
    answered = np.sort(samples.done[samples.ok])
    edges = [0.0, first_third_end, last_third_start, samples.seconds]
    moments = np.concatenate([answered[answered >= 0], edges])
    waiting = np.searchsorted(scheduled, moments, "right") - np.searchsorted(answered, moments, "right")
    least_at_first = waiting[moments <= first_third_end].min()
    least_at_last = waiting[moments >= last_third_start].min()
    arrived = int(((scheduled >= 0) & (scheduled < samples.seconds)).sum())
    # A growing queue is shortest at the start of each third, and these are two thirds of the window apart.
    allowed = (1 - ANSWERED_SHARE) * arrived * 2 / 3
    return int(least_at_last - least_at_first) <= allowed + CHANCE_DEVIATIONS * math.sqrt(arrived)
