"""How symmetry saves work on regular networks: groups, orbits, link loads, reversal, levels."""
