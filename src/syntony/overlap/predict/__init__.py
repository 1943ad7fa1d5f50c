"""How long a plan will take, the least that its costs allow, and why."""
