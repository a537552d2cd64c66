"""Language models: checkpoints of random weights, engines, and streamed load."""
