"""The scaling policy: from an observation to a replica count. Pure."""
