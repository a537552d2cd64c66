"""Envoy with plans set directly, other proxies, and load on them."""
