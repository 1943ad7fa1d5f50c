"""Data parallelism: the same weights everywhere, or a part of them on each rank; gradients summed to the same bits."""
