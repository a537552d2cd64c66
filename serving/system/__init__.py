"""Files, locks, sockets and processes of the operating system. The lowest package: it knows nothing of Slipway."""
