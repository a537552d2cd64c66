"""The configuration file: what it may say, where its values come from, and `slipway config`."""
