"""Batches: the requests that wait for a prediction, joined into one, and their answers."""
