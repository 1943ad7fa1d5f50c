"""Networks as pictures and tables."""
