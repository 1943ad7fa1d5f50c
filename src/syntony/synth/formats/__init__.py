"""Readers and writers of schedule and program files."""
