"""Measures one spec: starts its replica, drives load, observes it, removes it."""
