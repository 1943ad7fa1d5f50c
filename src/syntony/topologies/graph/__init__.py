"""What a network's graph tells: its symmetries, distances, and what is left after damage."""
