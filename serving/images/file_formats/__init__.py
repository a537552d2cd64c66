"""Formats of model files by name and bytes: which ones run code in their program. Loads none of them."""
