"""Training programs of the samples and the demo: run as Jobs, each writes a model for a ModelVersion."""
