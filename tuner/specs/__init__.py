"""The specs that an experiment may try: the grid of them, their deployments and their costs. Pure."""
