"""Placement: which ranks each axis of parallelism of a job gets, and how each axis sums (after P2)."""
