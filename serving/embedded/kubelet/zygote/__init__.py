"""Processes that have imported a runtime and are forked for every replica of it."""
