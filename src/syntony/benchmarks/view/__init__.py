"""Pages of `syntony view` in a real browser: how long they take to load, and to draw a frame."""
