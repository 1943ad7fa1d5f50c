"""What a plan will take, what no plan can beat, and why."""
