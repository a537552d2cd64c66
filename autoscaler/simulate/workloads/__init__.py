"""What a simulated service gets: arrivals, recorded traces, synthetic loads, and the workload made of them. Pure."""
