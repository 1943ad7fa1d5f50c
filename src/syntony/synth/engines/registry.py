"""The table of engines; add new ones here.

An engine is a module with a function `run` (engines/engine.py); it is imported when the engine runs.
"""

from __future__ import annotations

from dataclasses import replace

from syntony.base.wording import did_you_mean
from syntony.synth.engines.engine import Engine, EngineError

CP_SAT = "ortools.sat.python.cp_model"
ENGINES = (
    Engine("auto", "auto", "the fastest of those that ranks can run, by simulation", "-", "in_network"),
    Engine(
        "sccl",
        "sccl.search",
        "exact steps, rounds and chunks; up to about 16 ranks",
        "Cai et al., PPoPP'21",
        "z3",
        solver=CP_SAT,
    ),
    Engine(
        "forest",
        "forest.search",
        "exact throughput of collectives that copy or sum",
        "Zhao et al., NSDI'26",
        "TREES",
        sized=False,
    ),
    Engine(
        "blink",
        "blink.search",
        "near the exact throughput, with fewer trees, in less time",
        "Wang et al., MLSys'20",
        "LOSS",
        sized=False,
    ),
    Engine(
        "flow", "flow.search", "exact throughput of all_to_all, gather and scatter", "Basu et al., HPDC'24", sized=False
    ),
    Engine(
        "bfb",
        "bfb.search",
        "breadth first in the fewest steps; thousands of ranks",
        "Zhao et al., NSDI'25",
        sized=False,
    ),
    Engine(
        "taccl",
        "taccl.search",
        "guided by a sketch, from a file or derived",
        "Shah et al., NSDI'23",
        "SKETCH.toml",
        solver=CP_SAT,
    ),
    Engine(
        "teccl",
        "teccl.search",
        "for one size, with latencies; up to 128 ranks",
        "Liu et al., SIGCOMM'24",
        "in_network",
    ),
    Engine("pipeline", "pipeline.search", "shallow trees in slices, for middle sizes", "PipeComm, PKU, 2026"),
    Engine("greedy", "greedy", "any connected topology, hundreds of ranks", "after Won et al., TACOS, MICRO'24"),
    Engine("one_shot", "one_shot", "all_reduce of small sizes: gather, then add", "Thakur et al., IJHPCA'05"),
    Engine("fast", "fast.search", "all_to_all among boxes, uneven or not", "Lei et al., FAST, NSDI'26", sized=False),
    Engine("hierarchy", "hierarchy.search", "boxes and grids, level by level", "Cho et al., MLSys'19", "NAME[@4x8]"),
    Engine("in_network", "in_network", "switches that add and copy", "Graham et al., COM-HPC'16", sized=False),
)


def engine_named(text: str) -> Engine:
    """The engine of that name, with its argument behind a colon, if any. Raises EngineError."""
    name, _, argument = text.partition(":")
    for engine in ENGINES:
        if engine.name == name:
            if argument and not engine.argument:
                raise EngineError(f"engine {name} takes no argument, so '{text}' should be '{name}'")
            return replace(engine, given=argument)
    names = [engine.name for engine in ENGINES]
    raise EngineError(f"no engine '{name}'{did_you_mean(name, names)}; the engines are {', '.join(names)}")
