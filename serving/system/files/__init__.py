"""Files and directories: replaced atomically, locked, removed, and opened without following links."""
