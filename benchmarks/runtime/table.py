"""A table of the runtime: options, and parts (benchmarks/goals.py) that are measured while they are printed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.goals import Part


@dataclass(frozen=True)
class Table:
    """One table of the registry in __main__.py.

    parts      what is measured, from the options; raises UserError where it cannot be
    configure  adds the table's options
    """

    name: str
    summary: str
    parts: Callable[[argparse.Namespace], tuple[Part, ...]]
    configure: Callable[[argparse.ArgumentParser], None] = lambda parser: None
