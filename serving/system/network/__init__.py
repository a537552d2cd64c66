"""Sockets, and the listeners, servers and clients that use them."""
