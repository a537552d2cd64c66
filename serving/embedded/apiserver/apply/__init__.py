"""Server-side apply: which manager owns which field."""
