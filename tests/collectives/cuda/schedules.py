"""Schedule files for tests of what GPUs load."""

from __future__ import annotations

from pathlib import Path

import topologies
from synth.collective import Collective
from synth.engines.engine import Budget
from synth.engines.registry import engine_named
from synth.formats import schedule_file


def schedule(folder: Path, network: str, kind: str, engine: str) -> Path:
    """By an engine."""
    graph = topologies.parse(network)
    collective = Collective.make(kind, graph.ranks)
    path = folder / f"{engine}.json"
    schedule_file.write(engine_named(engine).run(graph, collective, 1 << 20, Budget()), path)
    return path
