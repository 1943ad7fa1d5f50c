"""Who competes in the tables of overlap, and in which lab."""
