"""What is known of a target's load: gateways' and activators' pages, replicas' own pages, the node's, a
Prometheus's.
"""
