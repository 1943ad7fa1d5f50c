"""A transformer as layers made of pure segments."""
