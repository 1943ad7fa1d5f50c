"""What should move, and when: collectives, schedules, bounds, engines, checker, simulator, formats."""
