"""Processes that have imported a runtime, and are forked for its replicas."""
