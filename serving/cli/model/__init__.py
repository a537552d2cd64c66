"""`slipway model`: model versions, their images, and importing what other tools wrote."""
