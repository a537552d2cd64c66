"""What the benchmarks stand on: load, proxies to compare with, the product's Envoy, and the report."""
