"""The Kubernetes API's conventions as pure functions over JSON objects: no clock, no IO, no randomness.

`pipeline` is the door for the server: it takes what is stored and what was asked, and returns what to store.
"""
