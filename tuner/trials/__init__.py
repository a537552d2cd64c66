"""Measures one spec for real: starts its replica, drives load, watches it, removes it.

It searches nothing.
"""
