"""Table `irregular`: networks as people have them, and what engine `auto` reaches on them beside the bounds.

`x bound`: simulated time over the bound at that size, at 1 MiB and at 1 GiB; `auto` has a budget of SECONDS of
processor time, counted as engines/workers.py says. Issue 28 has the rows; the networks are in networks/irregular.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from syntony.benchmarks.synthesis.by_auto import by_auto
from syntony.benchmarks.synthesis.networks.irregular import NETWORKS
from syntony.benchmarks.synthesis.table import Row, proven_table
from syntony.benchmarks.tables import Part
from syntony.synth.model.collective import Collective

SECONDS = 20.0
GOAL = 1.15
"""Most over the bound at 1 MiB."""
SIZES = (1 << 20, 1 << 30)
CASES = (
    ("torus", "all_reduce"),
    ("hosts", "all_reduce"),
    ("hosts", "all_gather"),
    ("hosts", "scatter"),
    ("fat tree", "broadcast"),
    ("dual-homed", "all_reduce"),
    ("pairs", "all_gather"),
    ("regular", "all_reduce"),
    ("dragonfly", "all_reduce"),
    ("dragonfly", "broadcast"),
)


def _rows() -> Iterator[Row]:
    for name, kind in CASES:
        topology = NETWORKS[name]()
        cells: list[str] = []
        over = []
        for size in SIZES:
            found, took = by_auto(topology, Collective.make(kind, topology.ranks), size, SECONDS)
            assert found.schedule.bounds is not None
            over.append(found.seconds / found.schedule.bounds.seconds(size))
            cells += [found.engine, f"{found.seconds * 1e6:.4g}", f"{over[-1]:.2f}", f"{took:.1f}"]
        far = over[0] > GOAL
        yield Row((topology.name, kind, *cells), f"more than {GOAL} times the bound at 1 MiB" if far else "")


TABLE = proven_table(
    "irregular",
    "engine auto on irregular networks, over the bounds",
    (
        Part(
            "Simulated at 1 MiB, then at 1 GiB",
            (
                ("network", -28), ("", -10),
                ("engine", 12), ("us", 8), ("x bound", 7), ("s", 5),
                ("engine", 12), ("us", 10), ("x bound", 7), ("s", 5),
            ),
            _rows,
        ),
    ),
)  # fmt: skip
