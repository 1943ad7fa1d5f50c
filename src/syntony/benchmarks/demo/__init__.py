"""The demonstration: the whole road on one screen, from the wires to a training step."""
