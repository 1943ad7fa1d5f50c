"""Schedule files for tests of what GPUs load."""

from __future__ import annotations

from pathlib import Path

from syntony import topologies
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.registry import engine_named
from syntony.synth.formats import schedule_file
from syntony.synth.model.collective import Collective


def schedule(folder: Path, network: str, kind: str, engine: str) -> Path:
    """By an engine."""
    graph = topologies.parse(network)
    collective = Collective.make(kind, graph.ranks)
    path = folder / f"{engine}.json"
    schedule_file.write(engine_named(engine).run(graph, collective, 1 << 20, Budget()), path)
    return path
