"""Whether the answers of an open loop keep up with its requests. Pure."""

import math

import numpy as np

from tuner.load.windows.samples import Samples

ANSWERED = 0.97
"""Share of an open loop's requests that must be answered; below it the queue grows without end."""
CHANCE = 2.0
"""Standard deviations of a Poisson count by which fewer requests may have arrived, or more may wait."""


def keeps_up(samples: Samples) -> bool:
    """Return whether the requests without an answer grew by no more than chance over the window.

    The least number of the first third is compared with that of the last, as some wait in any window: a
    burst, or those of the time that an answer takes. A failed request is never answered.
    """
    first, last = samples.seconds / 3, samples.seconds * 2 / 3
    due = np.sort(np.concatenate([samples.intended, samples.seconds - samples.unfinished]))
    answered = np.sort(samples.done[samples.ok])
    moments = np.concatenate([answered[answered >= 0], [0.0, first, last, samples.seconds]])
    waiting = np.searchsorted(due, moments, "right") - np.searchsorted(answered, moments, "right")
    grown = int(waiting[moments >= last].min() - waiting[moments <= first].min())
    arrived = int(((due >= 0) & (due < samples.seconds)).sum())
    return grown <= (1 - ANSWERED) * arrived * 2 / 3 + CHANCE * math.sqrt(arrived)
