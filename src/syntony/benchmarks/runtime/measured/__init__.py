"""What the runtime's tables run on their ranks."""
