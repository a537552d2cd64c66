"""Finds the cheapest container spec that meets an SLO; meets other controllers only by objects of the API."""
