"""What the synthesizer is measured by: one table per kind of engine, `python -m syntony.benchmarks.synthesis TABLE`."""
