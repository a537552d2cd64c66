"""The report of an experiment as JSON, as sentences and as an HTML page. Pure: it takes objects and `now`."""
