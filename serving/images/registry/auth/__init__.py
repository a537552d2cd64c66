"""Authorization at a registry: what it asks for, the user's credentials, and the tokens that they are exchanged for."""
