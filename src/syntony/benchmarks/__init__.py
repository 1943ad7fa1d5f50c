"""Benchmarks: a bench like nccl-tests with its peers, tables of measurements, and the demonstration."""
