"""Commands for objects of any kind: apply, get, describe, logs, top and delete."""
