"""The planners: the next objects as pure functions of the spec and the observed objects."""
