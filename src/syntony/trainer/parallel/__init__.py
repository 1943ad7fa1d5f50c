"""How layers are distributed over ranks."""
