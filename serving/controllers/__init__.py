"""Read, plan, apply, report: one controller per kind."""
