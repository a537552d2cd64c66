"""The autoscaler: writes replica counts, only through `/scale`; uses other packages only through the API."""
