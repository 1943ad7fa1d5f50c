"""Simulates a Schedule or a Program in the alpha-beta model with shared links."""
