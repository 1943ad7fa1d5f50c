"""The proof of a Schedule."""
