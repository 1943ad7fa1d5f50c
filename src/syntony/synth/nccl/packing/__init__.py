"""Channels for a host: tours packed by several searches, and the upper bound on their rate."""
