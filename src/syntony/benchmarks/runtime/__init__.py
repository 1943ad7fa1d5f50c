"""What the runtime is measured by: one table per promise, `python -m syntony.benchmarks.runtime TABLE`."""
