"""Policies: the order of communication and computation."""
