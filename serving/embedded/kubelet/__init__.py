"""Runs the Pods of one machine, as the kubelet does on a node of a cluster.

`pod/runner.py` runs a Pod: `pod/lifecycle.py` decides, `container/launch.py` starts its containers.
"""
