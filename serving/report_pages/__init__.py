"""Self-contained HTML pages for the reports of the tuner and the autoscaler. Pure."""
