"""The configuration: its schema, where its values come from, and `slipway config`."""
