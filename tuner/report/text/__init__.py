"""The sentences of the report, which the page and the terminal share."""
