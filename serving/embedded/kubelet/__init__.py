"""Runs the Pods of one machine, as the kubelet does on a node of a cluster.

A Pod starts in `pod/runner.py`, which asks `pod/lifecycle.py` what to start, and `container/launch.py` starts
it.
"""
