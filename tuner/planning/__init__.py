"""The next step of an experiment: the Trials to create, its end, and its status. Pure."""
