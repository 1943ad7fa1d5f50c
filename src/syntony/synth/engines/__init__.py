"""Engines: each computes a schedule from a topology and a collective. `registry` lists them."""
