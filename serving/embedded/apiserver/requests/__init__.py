"""Reading requests: paths, queries and bodies. Everything wrong with them is a 4xx."""
