"""Reading requests: paths, queries and bodies. An invalid one is a 4xx."""
