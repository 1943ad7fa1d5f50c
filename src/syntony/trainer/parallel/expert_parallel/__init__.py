"""Expert parallelism of the trainer."""
