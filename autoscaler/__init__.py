"""Sizes services. Writes replicas through `/scale` alone; meets the other packages only through the API."""
