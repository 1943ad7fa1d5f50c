"""What overlap is measured by: one table per promise, `python -m syntony.benchmarks.overlap TABLE`."""
