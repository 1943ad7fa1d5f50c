"""Context parallelism of the trainer."""
