"""How many replicas a target should have: values and the moment in, a decision out. Pure."""
