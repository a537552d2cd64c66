"""What the Deployment, Job and EndpointSlice controllers of a cluster would do, as pure functions.

Objects and `now` come in; Pods to create and delete, statuses and the next time to look come out. Nothing here
knows of processes, of the API or of the clock. A Deployment owns its Pods directly: there is no ReplicaSet.
"""
