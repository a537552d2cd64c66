"""Runs the Pods of one machine, as the kubelet does on a node of a cluster.

A Pod starts in `pod/runner.py`, in which `pod/lifecycle.py` decides and `container/launch.py` starts
it.
"""
