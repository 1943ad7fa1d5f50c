"""Shared-memory kernels that people use for inference on CPUs, as contenders of the bench."""
