"""Schedules from every source, executed by the real runtime and compared with NumPy bit for bit.

Ranks are threads of one process; values are small integers, so every order of summation gives the same floats.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from syntony import Communicator, topologies
from syntony.base.command import UserError
from syntony.base.deadline import Deadline
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.pipeline.meshes import Mesh
from syntony.synth.engines.portfolio import Entry, Portfolio
from syntony.synth.engines.registry import engine_named
from syntony.synth.formats import portfolio_file, schedule_file
from syntony.synth.formats.loading import load
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from tests.collectives.ranks import on_ranks

FOREIGN = Path(__file__).parents[2].parent / "shared" / "foreign" / "msccl-xml"
COUNTS = (1, 7, 1000, 50_001)  # elements per block
Array = NDArray[np.float32]


def run_everywhere(path: Path) -> None:
    """The schedule of a file on as many ranks as it is for. Rank 0 loads it as users do, which proves it; the others
    take the Program that has been proven, so that it is not proven once for each thread."""
    program = load(path)

    def job(group: Communicator) -> None:
        name = group.load(path) if group.rank == 0 else program.name
        if group.rank:
            group._core.add_program(name, program)
        for count in COUNTS:
            execute(group, program.collective, name, count)

    on_ranks(program.ranks, job)


def values(rank: int, elements: int) -> Array:
    return ((np.arange(elements) * (rank + 1)) % 251).astype(np.float32)


def execute(group: Communicator, kind: str, name: str, count: int) -> None:
    """One collective with `count` elements per block by the loaded schedule, checked."""
    n, me = group.size, group.rank
    whole, part = np.zeros(n * count, np.float32), np.zeros(count, np.float32)
    inputs = [values(r, count if kind in ("all_gather", "all_reduce") else n * count) for r in range(n)]
    if kind == "all_gather":
        group.all_gather(inputs[me], whole, algorithm=name)
        output, expected = whole, np.concatenate(inputs)
    elif kind == "all_reduce":
        group.all_reduce(inputs[me], part, algorithm=name)
        output, expected = part, sum(inputs, np.zeros_like(part))
    elif kind == "reduce_scatter":
        group.reduce_scatter(inputs[me], part, algorithm=name)
        output, expected = part, sum((x.reshape(n, count)[me] for x in inputs), np.zeros_like(part))
    elif kind == "all_to_all":
        group.all_to_all(inputs[me], whole, algorithm=name)
        output, expected = whole, np.concatenate([x.reshape(n, count)[me] for x in inputs])
    else:
        raise AssertionError(kind)
    assert output.tobytes() == expected.tobytes(), f"rank {me}, {kind}, {count} elements"


@pytest.mark.parametrize("path", sorted(FOREIGN.glob("*.xml")), ids=lambda path: path.stem)
def test_foreign_schedules_run(path: Path) -> None:
    run_everywhere(path)


@pytest.mark.parametrize("path", sorted((FOREIGN.parent / "mscclpp-plans").glob("*.json")), ids=lambda path: path.stem)
def test_foreign_plans_run(path: Path) -> None:
    """MSCCL++ plans, made two-sided."""
    run_everywhere(path)


def test_foreign_schedules_are_there() -> None:
    if not FOREIGN.is_dir():
        pytest.skip("the folder of foreign schedules is not beside this checkout")
    assert len(list(FOREIGN.glob("*.xml"))) == 18


@pytest.mark.parametrize(
    ("topology", "kind", "engine", "chunks", "steps", "rounds"),
    [
        ("dgx1", "all_gather", "sccl", 2, 2, 3),
        ("dgx1", "reduce_scatter", "sccl", 1, 2, 2),
        ("dgx1", "all_reduce", "sccl", 1, 4, 4),
        ("ring:4", "all_to_all", "sccl", 1, 2, None),
        ("torus:3x3", "all_reduce", "greedy", 1, None, None),
        ("dgx-a100:1", "all_to_all", "greedy", 1, None, None),
        ("mesh:2x3", "all_gather", "greedy", 2, None, None),
        ("torus:3x3", "all_gather", "forest", 1, None, None),
        ("dgx1", "all_reduce", "forest", 1, None, None),
        ("dgx1", "all_to_all", "flow", 1, None, None),
        ("torus:4x4", "all_to_all", "flow", 1, None, None),
        ("dgx-a100:2", "all_to_all", "flow", 1, None, None),
        ("rail:boxes=2,gpus=2,rails=2", "reduce_scatter", "greedy", 1, None, None),
        ("rail:boxes=2,gpus=4,rails=4", "all_to_all", "fast", 1, None, None),
        ("torus:3x4", "all_reduce", "hierarchy:themis", 1, None, None),
        ("rail:boxes=3,gpus=4,rails=4", "all_reduce", "hierarchy:two-level", 1, None, None),
        ("rail:boxes=2,gpus=4,rails=4", "all_gather", "hierarchy:accl", 1, None, None),
    ],
)
def test_synthesized_schedules_run(
    topology: str, kind: str, engine: str, chunks: int, steps: int | None, rounds: int | None, tmp_path: Path
) -> None:
    network = topologies.parse(topology)
    collective = Collective.make(kind, network.ranks, chunks)
    budget = Budget(steps=steps, rounds=rounds)  # here: its clock starts when it is made
    path = tmp_path / "schedule.json"
    schedule_file.write(engine_named(engine).run(network, collective, 1 << 20, budget), path)
    run_everywhere(path)


def test_partial_sums_on_a_mesh_run(tmp_path: Path) -> None:
    """Each byte is summed at several ranks, whose results have the same bits."""
    network = topologies.parse("mesh:4x2,bandwidth=50e9x200e9")
    mesh = Mesh.of(Network(network, Collective.make("all_reduce", network.ranks)))
    assert mesh is not None
    path = tmp_path / "schedule.json"
    schedule_file.write(next(mesh.schedules(100_000, 1 / 100e9, Deadline(60))), path)
    run_everywhere(path)


def test_a_portfolio_takes_the_schedule_for_the_size(tmp_path: Path) -> None:
    """Two schedules with a turn at 1,000 bytes, and sizes on both sides of it, right at it, and far beyond."""
    network = topologies.parse("ring:3")
    collective = Collective.make("all_gather", 3)
    entries = (
        Entry(engine_named("greedy").run(network, collective, 1 << 20, Budget()), 1000),
        Entry(engine_named("forest").run(network, collective, 1 << 20, Budget()), None),
    )
    path = portfolio_file.write(Portfolio(entries), tmp_path / "p.json")[0]

    def job(group: Communicator) -> None:
        name = group.load(path)
        made_by = {
            size: group._core.program_for("all_gather", 0, size, name).name.split()[-1]
            for size in (0, 999, 1000, 1001, 1 << 40)
        }
        assert list(made_by.values()) == ["greedy", "greedy", "greedy", "forest", "forest"]
        for count in COUNTS:
            execute(group, "all_gather", name, count)
        with pytest.raises(ValueError, match="must have ascending sizes, but after 5 bytes comes 5"):
            group._core.set_size_ranges("t", "all_gather", [(5, "ring", ""), (5, "direct", "")])

    on_ranks(network.ranks, job)


def test_a_schedule_for_other_ranks_is_refused(tmp_path: Path) -> None:
    network = topologies.parse("ring:3")
    path = tmp_path / "three.json"
    engine = engine_named("greedy")
    schedule_file.write(engine.run(network, Collective.make("all_gather", 3), 1 << 20, Budget()), path)

    def job(group: Communicator) -> None:
        with pytest.raises(UserError, match="for 3 ranks, the group has 2"):
            group.load(path)

    on_ranks(2, job)


def test_a_tampered_file_does_not_run(tmp_path: Path) -> None:
    network = topologies.parse("ring:3")
    path = tmp_path / "three.json"
    schedule = engine_named("greedy").run(network, Collective.make("all_gather", 3), 1 << 20, Budget())
    schedule_file.write(schedule, path)
    text = path.read_text()
    column = text.index('"dst"')
    start = text.index("[", column)
    end = text.index("]", start)
    path.write_text(text[: start + 1] + text[start + 1 : end].replace("1", "0", 1) + text[end:])

    def job(group: Communicator) -> None:
        with pytest.raises(UserError):
            group.load(path)

    on_ranks(3, job)
