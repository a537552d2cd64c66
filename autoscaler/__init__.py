"""The autoscaler: writes replica counts, only through `/scale`; meets other controllers by API objects."""
