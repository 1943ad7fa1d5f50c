"""What notebooks show of our values: the page of `syntony view`, in a frame.

The room that makes pages stands above all whose values it shows, so they find it by name, when a notebook asks.
"""

from __future__ import annotations

from importlib import import_module


def html_of(value: object) -> str:
    """The HTML of a Topology, a Schedule or a Plan, for `_repr_html_`."""
    found: str = import_module("syntony.view.notebook").html_of(value)
    return found
