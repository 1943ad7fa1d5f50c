"""SYNTONY_CHECK=1: proves, at group creation, every Program that the group's builders can make."""

from __future__ import annotations

import os
from collections.abc import Sequence

from syntony import _core

_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})


def wanted() -> bool:
    """Whether the environment asks for the proofs."""
    return os.environ.get("SYNTONY_CHECK", "0") not in ("", "0")


def prove_builders(ranks: int, boxes: Sequence[Sequence[int]]) -> int:
    """Proves each algorithm for each collective and root over these ranks and hosts; returns the number of Programs.

    Raises RuntimeError that names the Program and its first fault.
    """
    from syntony.synth.checker import check_program

    count = 0
    # A single host has no levels: `hierarchical` invents some, as it does at run time.
    levels = [list(box) for box in boxes] if len(boxes) > 1 else None
    for algorithm in _core.algorithms():
        for collective in algorithm.collectives:
            for root in range(ranks) if collective in _ROOTED else (0,):
                program = _core.build(algorithm.name, collective, ranks, root, levels)
                verdict = check_program(program)
                if not verdict:
                    raise RuntimeError(
                        f"SYNTONY_CHECK: {algorithm.name} {collective} over {ranks} ranks, root {root}: {verdict.fault}"
                    )
                count += 1
    return count
