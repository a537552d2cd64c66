"""Shares of a GPU: what each mechanism that shares GPUs needs in a Pod. Pure."""
