"""How layers are cut over ranks."""
