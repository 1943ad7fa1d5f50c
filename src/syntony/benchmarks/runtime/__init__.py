"""Measurements of the runtime: one table per promise, `python -m syntony.benchmarks runtime TABLE`."""
