"""Parts of Kubernetes' own objects and requests that several packages use: conditions, owner references,
phases and resources of Pods, statuses of containers, Events, versions of nodes, and media types of patches.
Pure.
"""
