"""The gateway's metrics page: Envoy's counts by revision of a predictor."""
