"""Defaults and rules of built-in kinds that their schemas cannot state."""
