"""Predicts how long a plan takes, a lower bound for its costs, and explains why."""
