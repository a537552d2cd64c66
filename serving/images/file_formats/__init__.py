"""Formats of model files by name and bytes: which ones run code in the program that loads them. Never loads."""
