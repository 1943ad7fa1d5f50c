"""Placement: which ranks each axis of parallelism of a job gets, and how each axis reduces (after P2)."""
