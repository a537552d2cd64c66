"""One window of load: its samples, and the summary of them that a Trial's status has. Pure."""
