"""Policies: who moves what when."""
