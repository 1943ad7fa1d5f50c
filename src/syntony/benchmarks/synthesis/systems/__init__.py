"""Tables of named systems: their published results beside ours."""
