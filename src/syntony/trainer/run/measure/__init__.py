"""Real steps that are timed: costs for predictions, and choices of plans, settings and shares by measurement."""
