"""The activator: holds the requests of predictors without a replica, and forwards them once there is one."""
