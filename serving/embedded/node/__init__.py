"""The node agent: runs Deployments and Jobs as local processes."""
