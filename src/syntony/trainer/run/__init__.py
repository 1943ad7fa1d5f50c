"""A training run: steps, ranks, profiles, checkpoints."""
