"""Computations on a network's graph: symmetries, distances, and what remains after damage."""
