"""Text formats in and beside the kinds: quantities, durations, ages and container metrics. Pure."""
