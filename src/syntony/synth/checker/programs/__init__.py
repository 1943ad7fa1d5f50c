"""The proof of a Program."""
