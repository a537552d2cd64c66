"""Finds the cheapest container spec that meets an SLO. Meets the other packages only through the API."""
