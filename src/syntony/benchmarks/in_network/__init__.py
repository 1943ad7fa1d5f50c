"""Adding in the network against a ring, measured in the lab: `python -m syntony.benchmarks lab in_network`."""
