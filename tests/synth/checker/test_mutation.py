"""Mutants: right programs and schedules with one thing changed. The checker refuses them, naming the place, or the
change is harmless by the word of an independent simulation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from syntony.synth.checker import Verdict, check_program, check_schedule
from syntony.synth.model.instructions import INSTRUCTION_FIELDS, Opcode, ProgramError, Space
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule, Transfer, Transfers
from syntony.synth.symmetry.groups import fold
from tests.sampled import one_in
from tests.synth import random_executor
from tests.synth.programs import exchange, one_sided_gather, relay_broadcast, ring_all_reduce
from tests.synth.schedules import SCHEDULES as ON_RANKS
from tests.synth.schedules import SWITCHED, homes, works

SCHEDULES = ON_RANKS | SWITCHED
COLUMN = {name: at for at, name in enumerate(INSTRUCTION_FIELDS)}


# --- programs ---------------------------------------------------------------------------------------------------------

PROGRAMS: dict[str, Callable[[], Program]] = {
    "ring": lambda: ring_all_reduce(4),
    "exchange": lambda: exchange(3),
    "relay": relay_broadcast,
    "one-sided": one_sided_gather,
}


def drop_instruction(original: Program, rng: random.Random) -> Program:
    """Without one instruction; what waited for it waits for nothing, later ones move up."""
    row = rng.randrange(len(original.instructions))
    agent, lane = original.instructions[row, :2].tolist()
    position = int(original.position[row])
    owner = np.repeat(np.arange(len(original.instructions)), original.field("dependency_count"))
    alone = np.count_nonzero(np.all(original.instructions[:, :2] == (agent, lane), axis=1)) == 1
    instructions, dependencies = original.instructions.copy(), original.dependencies.copy()
    if alone:  # lanes are numbered without holes
        instructions[row, COLUMN["opcode"] :] = [Opcode.nop, 0, 0, 0, 0, 1, -1, -1, 0, 0, 0, 0]
        keep = owner != row
        kept_operands = np.repeat(np.arange(len(instructions)), original.field("operand_count")) != row
        return original.replace(
            instructions=instructions,
            dependencies=dependencies[keep],
            operands=original.operands[kept_operands],
        )
    same_agent = original.field("agent")[owner] == agent
    gone = (owner == row) | (same_agent & (dependencies[:, 0] == lane) & (dependencies[:, 1] == position))
    later = same_agent & (dependencies[:, 0] == lane) & (dependencies[:, 1] > position)
    dependencies[later, 1] -= 1
    np.subtract.at(instructions[:, COLUMN["dependency_count"]], owner[gone], 1)
    kept_operands = np.repeat(np.arange(len(instructions)), original.field("operand_count")) != row
    return original.replace(
        instructions=np.delete(instructions, row, axis=0),
        dependencies=dependencies[~gone],
        operands=original.operands[kept_operands],
    )


def drop_dependency(original: Program, rng: random.Random) -> Program:
    """Without one dependency."""
    if not len(original.dependencies):
        return drop_instruction(original, rng)
    at = rng.randrange(len(original.dependencies))
    owner = np.repeat(np.arange(len(original.instructions)), original.field("dependency_count"))
    instructions = original.instructions.copy()
    instructions[owner[at], COLUMN["dependency_count"]] -= 1
    return original.replace(instructions=instructions, dependencies=np.delete(original.dependencies, at, axis=0))


def change_field(original: Program, rng: random.Random) -> Program:
    """Another peer, slot, space, channel or opcode for one instruction."""
    instructions = original.instructions.copy()
    row = rng.randrange(len(instructions))
    name, limit = rng.choice(
        (
            ("recv_peer", original.ranks),
            ("send_peer", original.ranks),
            ("dst_index", 4),
            ("src_index", 4),
            ("dst_space", len(Space)),
            ("src_space", len(Space)),
            ("channel", 2),
            ("skew", 3),
            ("opcode", len(Opcode)),
        )
    )
    instructions[row, COLUMN[name]] = rng.randrange(limit)
    return original.replace(instructions=instructions)


def change_operand(original: Program, rng: random.Random) -> Program:
    """Another slot for one further source."""
    if not len(original.operands):
        return change_field(original, rng)
    operands = original.operands.copy()
    operands[rng.randrange(len(operands))] = (rng.randrange(len(Space)), rng.randrange(3))
    return original.replace(operands=operands)


def swap_neighbours(original: Program, rng: random.Random) -> Program:
    """Two consecutive instructions of a lane in the other order (with their own dependencies and operands)."""
    both = np.flatnonzero(np.all(original.instructions[1:, :2] == original.instructions[:-1, :2], axis=1))
    owned = original.field("operand_count") + original.field("dependency_count")
    plain = [row for row in both.tolist() if not owned[row : row + 2].any()]
    if not plain:
        return change_field(original, rng)
    row = rng.choice(plain)
    instructions = original.instructions.copy()
    instructions[[row, row + 1]] = instructions[[row + 1, row]]
    return original.replace(instructions=instructions)


PROGRAM_MUTATIONS = (drop_instruction, drop_dependency, change_field, change_operand, swap_neighbours)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", PROGRAMS)
def test_accepted_program_mutants_run_right(name: str, seed: int) -> None:
    original = PROGRAMS[name]()
    rng = random.Random(f"{name} {seed}")
    counts: Counter[str] = Counter()
    for number in range(60):
        mutation = rng.choice(PROGRAM_MUTATIONS)
        try:
            mutant = mutation(original, rng)
        except ProgramError:
            counts["malformed"] += 1
            continue
        verdict = check_program(mutant)
        counts["accepted" if verdict else "refused"] += 1
        if not verdict:
            assert verdict.fault
            continue
        for run in range(8):
            for in_place in (False, True):
                try:
                    random_executor.run(mutant, in_place, random.Random(run))
                except random_executor.WrongError as error:
                    raise AssertionError(
                        f"seed {seed}, mutant {number} by {mutation.__name__} was accepted, yet: {error}\n{mutant}"
                    ) from error
    assert counts["refused"] > 20, counts


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_instruction_can_be_left_out(name: str) -> None:
    original = PROGRAMS[name]()

    class Row(random.Random):
        """Dice that fall on one given number."""

        def randrange(self, *_: object) -> int:  # type: ignore[override]
            return self.row

        row = 0

    for row in range(len(original.instructions)):
        rng = Row()
        rng.row = row
        verdict = check_program(drop_instruction(original, rng))
        assert not verdict.valid, original.where(row)


# --- schedules --------------------------------------------------------------------------------------------------------


def remove(rows: list[Transfer], rng: random.Random, _: Schedule) -> None:
    """One transfer less."""
    rows.pop(rng.randrange(len(rows)))


def duplicate(rows: list[Transfer], rng: random.Random, schedule: Schedule) -> None:
    """One transfer again, in its own or another step."""
    row = rng.choice(rows)
    step = rng.choice((row.step, rng.randrange(schedule.steps)))
    rows.insert(rng.randrange(len(rows) + 1), replace(row, step=step))


def redirect(rows: list[Transfer], rng: random.Random, schedule: Schedule) -> None:
    """One transfer to another destination, over a link that leads there when there is one."""
    at = rng.randrange(len(rows))
    row = rows[at]
    home = homes(schedule)
    dst = rng.choice([agent for agent in range(len(home)) if agent not in (row.src, row.dst)])
    links = [link.id for link in schedule.topology.links if (link.src, link.dst) == (home[row.src], home[dst])]
    rows[at] = replace(row, dst=dst, route=(rng.choice(links),) if links else row.route)


def swap_steps(rows: list[Transfer], rng: random.Random, schedule: Schedule) -> None:
    """Two transfers of different steps take each other's step."""
    one, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    rows[one], rows[other] = (
        replace(rows[one], step=rows[other].step),
        replace(rows[other], step=rows[one].step),
    )


def change_route(rows: list[Transfer], rng: random.Random, schedule: Schedule) -> None:
    """One transfer over another link."""
    at = rng.randrange(len(rows))
    rows[at] = replace(rows[at], route=(rng.randrange(len(schedule.topology.links)),))


def change_value(rows: list[Transfer], rng: random.Random, schedule: Schedule) -> None:
    """One transfer moves another value."""
    at = rng.randrange(len(rows))
    value = rng.randrange(len(schedule.values))
    rows[at] = replace(rows[at], value=value, result=rng.choice((value, rows[at].result)))


def is_named(verdict: Verdict) -> bool:
    """Whether the fault names rank, step and chunk, in words and in fields."""
    fault = verdict.fault or ""
    fields = (verdict.agent, verdict.step, verdict.chunk)
    who = "rank" in fault or "switch" in fault
    return (
        None not in fields and who and all(word in fault for word in (f"step {verdict.step}", f"chunk {verdict.chunk}"))
    )


def mutate(schedule: Schedule, mutation: Callable[..., None], rng: random.Random) -> Schedule:
    rows = schedule.transfers.rows()
    mutation(rows, rng, schedule)
    return replace(schedule, transfers=Transfers.of(rows))


@pytest.mark.parametrize(("name", "folded", "seed"), one_in(4, [*SCHEDULES], [False, True], range(10)))
def test_a_transfer_removed_duplicated_or_redirected_is_refused(name: str, folded: bool, seed: int) -> None:
    """No exceptions: the checker accepts only schedules in which every transfer is needed, once, where it goes.

    `folded`: as files store them, one transfer per orbit where the schedule is symmetric.
    """
    original = fold(SCHEDULES[name]()) if folded else SCHEDULES[name]()
    rng = random.Random(f"{name} {seed}")
    for number in range(20):
        for mutation in (remove, duplicate, redirect):
            verdict = check_schedule(mutate(original, mutation, rng))
            assert not verdict.valid, f"seed {seed}, mutant {number}: {mutation.__name__} went unnoticed"
            assert is_named(verdict), verdict.fault


@pytest.mark.parametrize(("name", "seed"), one_in(3, [*SCHEDULES], range(10)))
def test_other_schedule_mutants_are_refused_or_work(name: str, seed: int) -> None:
    original = SCHEDULES[name]()
    rng = random.Random(f"{name} {seed}")
    for number in range(30):
        mutation = rng.choice((swap_steps, change_route, change_value))
        mutant = mutate(original, mutation, rng)
        if check_schedule(mutant):
            assert works(mutant), f"seed {seed}, mutant {number} by {mutation.__name__} was accepted"


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_originals_are_valid_and_work(name: str) -> None:
    original = SCHEDULES[name]()
    assert check_schedule(original).fault is None
    assert works(original)
