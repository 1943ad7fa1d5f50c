"""Tensor parallelism of the trainer."""
