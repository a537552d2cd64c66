"""The gateway's page of metrics: Envoy's counts by revision of a predictor."""
