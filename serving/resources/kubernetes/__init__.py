"""Parts of the objects of Kubernetes itself that several packages read: conditions, phases of Pods, Events,
and versions of nodes. Pure.
"""
