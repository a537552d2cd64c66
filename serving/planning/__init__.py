"""What should exist next, as pure functions of what is desired and what was seen."""
