"""Single hosts full of accelerators, and how such boxes repeat on a network."""
