"""Skewed Programs, run in many slices by the interpreter of program.hpp: what the checker accepts is right."""

from __future__ import annotations

import random

import numpy as np
import pytest

from syntony.synth.checker import check_program
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.forest import search as forest
from syntony.synth.formats.program_file import from_dict, program_text
from syntony.synth.lowering.lower import lower
from syntony.synth.model.collective import Collective
from syntony.synth.model.instructions import INSTRUCTION_FIELDS, ProgramError
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule
from syntony.synth.model.target import CPU, MSCCL, fit
from syntony.synth.simulation.program_simulator import executor_slice, simulate_program
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.parse import parse
from tests.csrc.program_interpreter import expected_outputs, random_inputs
from tests.csrc.program_interpreter import run as interpret
from tests.synth.schedules import chain_all_reduce, ring_all_gather

SKEW = INSTRUCTION_FIELDS.index("skew")


def forest_schedule(name: str, kind: str) -> Schedule:
    topology = parse(name)
    return forest.run(topology, Collective.make(kind, topology.ranks), 1 << 20, Budget())


PROGRAMS = {
    "chain": lambda: lower(chain_all_reduce(4), CPU),
    "ring": lambda: lower(ring_all_gather(4), CPU),
    "mesh": lambda: lower(forest_schedule("mesh:2x2", "all_reduce"), CPU),
    "mesh 2x3": lambda: lower(forest_schedule("mesh:2x3", "reduce_scatter"), CPU),
}


def run_in_slices(program: Program, seed: int) -> None:
    """Some 7 slices, in a random order at the FIFO depth that the Program claims; the outputs must be right."""
    rng = np.random.default_rng(seed)
    columns = program.columns()
    blocks = len(np.unique(program.chunks[:, 0]))
    per_chunk = int(np.bincount(program.chunks[:, 0], program.chunks[:, 1]).max())
    sizes = [7 * per_chunk + 3] * blocks
    inputs = random_inputs(columns, sizes, rng)
    slice_elements = max(1, int(program.chunks[:, 1].max()))
    for in_place in (False, True):
        found = interpret(columns, sizes, inputs, rng, in_place=in_place, slice_elements=slice_elements)
        for rank, (mine, wanted) in enumerate(zip(found, expected_outputs(columns, sizes, inputs), strict=True)):
            assert mine.keys() == wanted.keys()
            assert all(np.array_equal(mine[block], wanted[block]) for block in wanted), (rank, in_place)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowered_programs_are_skewed_by_step_and_right(name: str) -> None:
    program = PROGRAMS[name]()
    assert program.skewed
    assert check_program(program).fault is None
    for seed in range(3):
        run_in_slices(program, seed)
        run_in_slices(program.without_skew(), seed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_mutants_in_skew_are_refused_or_right(name: str) -> None:
    original = PROGRAMS[name]()
    rng = random.Random(name)
    accepted = refused = 0
    for number in range(60):
        instructions = original.instructions.copy()
        rows = rng.sample(range(len(instructions)), rng.choice((1, 1, 2)))
        if rng.random() < 0.3:  # both ends of one message, so that more than matching is put to the test
            partner = np.flatnonzero(instructions[:, SKEW] == instructions[rows[0], SKEW])
            rows = rng.choice((rows, partner.tolist()))
        instructions[rows, SKEW] = rng.randrange(int(original.field("skew").max()) + 2)
        try:
            mutant = original.replace(instructions=instructions)
        except ProgramError:  # skews decrease along a lane
            refused += 1
            continue
        if check_program(mutant).valid:
            accepted += 1
            run_in_slices(mutant, number)
        else:
            refused += 1
    assert accepted
    assert refused


def edited(program: Program, row: int, skew: int) -> Program:
    instructions = program.instructions.copy()
    instructions[row, SKEW] = skew
    return program.replace(instructions=instructions)


def test_faults_are_named() -> None:
    program = lower(chain_all_reduce(3), CPU)
    last = [row for row in range(len(program.instructions)) if program.where(row).startswith("rank 0, lane 1")][-1]
    fault = check_program(edited(program, last, int(program.field("skew").max()) + 1)).fault
    assert fault is not None
    assert "both ends of a message must be equally far behind" in fault
    early = program.replace(
        instructions=np.where(
            (program.field("skew") == 1)[:, None] & (np.arange(len(INSTRUCTION_FIELDS)) == SKEW),
            0,
            np.where(np.arange(len(INSTRUCTION_FIELDS)) == SKEW, program.instructions * 2, program.instructions),
        ),
    )
    assert check_program(early).fault is None  # two steps of one stage: one slice passes both in a turn
    behind = program.instructions.copy()
    behind[behind[:, SKEW] == 0, SKEW] = 2
    fault = check_program(program.replace(instructions=behind)).fault
    assert fault is not None
    assert "what waits must be at least as far behind" in fault


def test_skews_survive_the_file_and_rows_without_them_have_none() -> None:
    import json

    program = PROGRAMS["mesh"]()
    again = from_dict(json.loads(program_text(program)), "here")
    assert again == program
    assert again.hash == program.hash != program.without_skew().hash
    assert "slices behind" in str(program)
    short = program.replace(instructions=program.instructions[:, :SKEW])
    assert short == program.without_skew()


def test_a_target_that_takes_no_skew_gets_none() -> None:
    program = PROGRAMS["ring"]()
    assert fit(program, CPU) is program
    assert fit(program, MSCCL) == program.without_skew()


@pytest.mark.parametrize(("name", "kind"), [("mesh:3x3", "all_reduce"), ("dgx1", "all_gather")])
def test_a_deep_forest_runs_as_fast_as_its_schedule(name: str, kind: str) -> None:
    """Simulated, with many slices: as the Schedule, and much faster than slice after slice where trees share lanes."""
    schedule = forest_schedule(name, kind)
    program = lower(schedule, CPU)
    size, most = 256 << 20, executor_slice(program.ranks)
    skewed, plain = (
        simulate_program(found, schedule.topology, size, most).seconds for found in (program, program.without_skew())
    )
    assert skewed < 0.8 * plain
    assert skewed < 1.03 * simulate(schedule, size, slice_bytes=most).seconds


def test_one_slice_is_as_fast_with_skew() -> None:
    schedule = forest_schedule("mesh:3x3", "all_reduce")
    program = lower(schedule, CPU)
    for size in (100, 100_000):
        times = [simulate_program(p, schedule.topology, size).seconds for p in (program, program.without_skew())]
        assert times[0] == pytest.approx(times[1])
