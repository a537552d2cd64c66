"""The report of a simulation: sentences, a table, an HTML page and JSON. Pure."""
