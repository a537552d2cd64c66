"""`slipway autoscale`: decisions of the autoscaler with their reasons, and policies on recorded load."""
