"""What should exist next, as pure functions of the spec and the observed objects."""
