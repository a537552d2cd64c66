"""Tables for `kubectl get`: their columns and rows."""
