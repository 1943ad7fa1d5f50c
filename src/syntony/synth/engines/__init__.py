"""Engines: from a topology and a collective to a schedule. `registry` lists them."""
