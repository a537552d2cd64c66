"""Files, locks, sockets and processes of the operating system: the lowest package, independent of Slipway."""
