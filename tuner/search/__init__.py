"""The search for the best spec: what to measure next, when to stop, what to recommend. Pure.

Numbers in, numbers out.
"""
