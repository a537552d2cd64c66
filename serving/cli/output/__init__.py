"""How commands print objects and tables, and write files."""
