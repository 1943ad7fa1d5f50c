"""Measurements of overlap and the trainer: one table per promise, `python -m syntony.benchmarks overlap TABLE`."""
