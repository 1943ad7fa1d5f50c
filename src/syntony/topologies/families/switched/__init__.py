"""Networks of switches: Clos, Dragonfly and their kin."""
