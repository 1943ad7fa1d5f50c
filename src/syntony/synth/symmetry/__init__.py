"""What symmetric networks save: groups, orbits, link loads, reversal, levels."""
