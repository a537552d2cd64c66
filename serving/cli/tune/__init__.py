"""`slipway tune`: experiments that search for the best spec of a predictor."""
