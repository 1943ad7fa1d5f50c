"""The small model of tests that train by configuration files."""

from __future__ import annotations

SMALL = """
[model]
blocks = 2
width = 32
heads = 2
context = 16
hidden = 64
[data]
source = "{text}"
rows = 2
microbatches = 4
[optimizer]
lr = 0.01
warmup = 2
[overlap]
profile = 0
"""
"""TOML, but what a run is; for format(text=..), the path of the text."""
