"""Networks whose ranks forward for each other, or share one switch."""
