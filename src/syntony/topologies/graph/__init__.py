"""Computations on a network's graph: symmetries, distances, and what is left after damage."""
