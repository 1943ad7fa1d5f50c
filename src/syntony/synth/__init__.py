"""Synthesis: collectives, schedules, bounds, engines, checker, simulator, formats."""
