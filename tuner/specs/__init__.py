"""The specs that an experiment may try: the grid of them, what each deploys as, and what it costs. Pure."""
