"""The controllers, one for each kind: they read, plan, apply and report."""
