"""What a simulation showed: in sentences, as a table, as one HTML page and as JSON. Pure."""
