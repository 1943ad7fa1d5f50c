"""Placement: which ranks a job's axes of parallelism get, and how each then sums (P2)."""
