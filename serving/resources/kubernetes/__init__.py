"""Parts of the objects of Kubernetes itself that several packages read: conditions, owner references, phases
and resources of Pods, statuses of containers, Events, and versions of nodes. Pure.
"""
