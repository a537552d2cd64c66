"""What an experiment should do next: which Trials to make, when it is over, what its status says. Pure."""
