"""Formats of steps and plans for other tools: Perfetto (Chrome traces), Chakra's execution traces."""
