"""Lower bounds on latency and time per byte of any schedule, exact, with witnesses."""
