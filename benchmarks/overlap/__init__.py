"""What overlap is measured by: one table per promise, `python -m benchmarks.overlap TABLE`."""
