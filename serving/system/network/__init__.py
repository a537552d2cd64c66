"""Sockets, and what listens and connects through them."""
