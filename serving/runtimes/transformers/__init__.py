"""The runtime of language models."""
