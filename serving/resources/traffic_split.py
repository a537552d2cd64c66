"""Figures of a traffic split that schemas, plans and commands share. It imports nothing, for the commands."""

DEFAULT_WEIGHT = 1
"""`trafficWeight` of a predictor that sets none: a sole predictor gets all requests, several equal shares."""
HEAVIEST_WEIGHT = 1_000_000
"""Largest `trafficWeight`."""
RING_UNITS = 10_000
"""Units of a Route's hash ring, to which the sizes of its segments sum: 0.01 % is the smallest share."""
