"""The controllers of Deployments, Jobs, EndpointSlices and finished Pods: a cluster's controller manager.

One folder per kind: `plan.py` and `status.py` decide, `controller.py` reads and writes. A Deployment owns its
Pods directly: there is no ReplicaSet.
"""
