"""How steps and plans are written down for others: Perfetto (Chrome traces), Chakra's execution traces."""
