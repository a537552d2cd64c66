"""What several packages ask of the operating system: files, locks, ports and processes. The lowest package: it knows
nothing of Slipway, and imports little more than the standard library, as it runs in every process.
"""
