"""Authorization at registries: their challenges, the user's credentials, and tokens."""
