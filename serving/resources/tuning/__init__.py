"""The kinds of the tuner: an experiment, its trials and their load, and the profile that it measures."""
