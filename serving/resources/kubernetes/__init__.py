"""Parts of the objects of Kubernetes itself that several packages read: conditions, owner references, phases
of Pods, Events, and versions of nodes. Pure.
"""
