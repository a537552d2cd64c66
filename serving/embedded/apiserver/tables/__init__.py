"""The columns that `kubectl get` prints."""
