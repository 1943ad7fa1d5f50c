"""Adding in the network against a ring, measured in the lab: `python -m benchmarks.in_network`."""
