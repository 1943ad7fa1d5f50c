"""Adding in the network against a ring, measured in the lab: `python -m syntony.benchmarks.in_network`."""
