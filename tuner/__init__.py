"""Finds the cheapest container spec that meets an SLO; meets other controllers by API objects."""
