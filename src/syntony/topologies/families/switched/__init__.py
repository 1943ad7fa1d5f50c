"""Networks of switches: Clos, Dragonfly and similar ones."""
