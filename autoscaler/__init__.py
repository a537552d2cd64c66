"""The autoscaler: writes replica counts, only through `/scale`; meets other controllers only by API objects."""
