"""The search for the highest load that meets the constraints, from the summaries of windows. Pure."""
