"""The report of a simulation: in sentences, as a table, as one HTML page and as JSON. Pure."""
