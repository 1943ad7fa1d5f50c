"""The demonstration: the whole path on one screen, from the wires to a training step."""
