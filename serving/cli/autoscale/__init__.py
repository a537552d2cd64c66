"""`slipway autoscale`: what the autoscaler does and why, and trying policies on recorded load."""
