"""Shares of a GPU, rendered into a Pod for each sharing mechanism. Pure."""
