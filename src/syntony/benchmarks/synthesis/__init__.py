"""Measurements of synthesis: one table per kind of engine, `python -m syntony.benchmarks synthesis TABLE`."""
