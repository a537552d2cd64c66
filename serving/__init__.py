"""Slipway's serving control plane: kinds, planning, images, gateway, runtimes, controllers, local API."""
