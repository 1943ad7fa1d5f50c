"""Lowers a Schedule to a Program that a Target can run."""
