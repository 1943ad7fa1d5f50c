"""Runs schedules on any ProcessGroup as rounds of grouped sends, receives and sums (`syntony.over`)."""
