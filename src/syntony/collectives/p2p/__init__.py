"""Schedules on any ProcessGroup: rounds of grouped sends and receives, and sums (`syntony.over`)."""
