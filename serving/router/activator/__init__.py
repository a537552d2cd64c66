"""The activator: holds the requests of predictors without a replica, and forwards them when one is ready."""
