"""Channels for a host: packed tours, by several searches, and the bound that none of them can beat."""
