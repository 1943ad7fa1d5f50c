"""Programs on one GPU by several ranks: `python -m benchmarks.cuda`."""
