"""Jobs: attempts, their back-off, and the status that kubectl reads."""
